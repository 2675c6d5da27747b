"""Report work that takes long."""

from __future__ import annotations

import threading
from typing import TextIO

from typing_extensions import Self


class Activity:
    """Prints a line on work that takes longer than ``delay`` seconds."""

    def __init__(self, text: str, stream: TextIO, delay: float = 1.0) -> None:
        """Create an activity.

        Args:
            text: The work.
            stream: Takes the line.
            delay: Seconds to stay silent.
        """
        # A whole line, so that other output meanwhile starts a line of its own.
        self._timer = threading.Timer(delay, lambda: print(f"{text} ...", file=stream, flush=True))
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        # Afterwards the timer either spoke or never will.
        self._timer.join()
