"""Observer of jobs."""

from __future__ import annotations

from pathlib import Path


class Watch:
    """Observer of a job; by default each hook does nothing."""

    def note(self, text: str) -> None:
        """Receive a note about the job."""

    def detail(self, text: str) -> None:
        """Receive a line that an option requests, such as ``--print-changed``."""

    def choose(self, folder: Path) -> Path | None:  # noqa: ARG002
        """Return one of several models in a folder; ``None`` to refuse the folder."""
        return None
