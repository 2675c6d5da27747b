"""Watch jobs at work."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.engine.instrumentation import Instrumentation


class Watch:
    """Observes a job; every hook does nothing by default."""

    def note(self, text: str) -> None:
        """Take a remark on the job."""

    def detail(self, text: str) -> None:
        """Take a line that the user asked for."""

    def choose(self, folder: Path) -> Path | None:  # noqa: ARG002
        """Return the model to take of several in a folder; ``None`` to refuse it."""
        return None

    def activity(self, text: str) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context around work that may take long."""
        return contextlib.nullcontext()

    def instruments(self) -> list[Instrumentation]:
        """Return observers of the passes."""
        return []
