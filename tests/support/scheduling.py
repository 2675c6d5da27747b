"""Share out tests between workers so that each fixture is loaded, converted and compiled in one of them."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from support.models import fixture_of


class ByFixture(LoadScopeScheduling):  # type: ignore[misc]
    """Give all tests of one fixture to one worker, and those that name no fixture by file."""

    def _split_scope(self, nodeid: str) -> str:
        return fixture_of(nodeid) or nodeid.partition("::")[0]
