"""Telling people what takes long."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Activity"]


class Activity:
    """A context that says in one line what is being done, once it takes longer than ``delay`` seconds."""

    def __init__(self, text: str, stream: TextIO, delay: float = 1.0) -> None:
        """Create an activity.

        Args:
            text: What is being done.
            stream: Where to say it.
            delay: Seconds to stay silent.
        """
        # A whole line, so that whatever else is said meanwhile starts a line of its own.
        self._timer = threading.Timer(delay, lambda: print(f"{text} ...", file=stream, flush=True))
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        # Afterwards the timer either spoke or never will.
        self._timer.join()
