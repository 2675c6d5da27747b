"""Share out tests between workers so that each fixture is loaded, converted and compiled in one of them."""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

from support.models import fixtures


class ByFixture(LoadScopeScheduling):  # type: ignore[misc]
    """Give all tests of one fixture to one worker, and those that name no fixture by file."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        words = re.split(r"\W+", test.partition("[")[2])
        return next((word for word in words if word and (fixtures() / word).is_dir()), file)
