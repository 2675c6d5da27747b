"""Watch jobs at work."""

from __future__ import annotations

from pathlib import Path


class Watch:
    """Observes a job; every hook does nothing by default."""

    def note(self, text: str) -> None:
        """Take a remark on the job."""

    def detail(self, text: str) -> None:
        """Take a line that the user asked for."""

    def choose(self, folder: Path) -> Path | None:  # noqa: ARG002
        """Return the model to take of several in a folder; ``None`` to refuse it."""
        return None
