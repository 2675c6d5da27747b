"""Start the program ``graphpass``, and answer interrupts from the first import to the last line."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # as of typing, which takes longer to import than all else here
if TYPE_CHECKING:
    from types import FrameType

_INTERRUPTED = 130

#: Seconds until the next try to interrupt.
_SOON = 0.02


def run() -> None:
    """Run the program, and exit with its code."""
    # Nothing is begun yet that would have to be left tidy.
    signal.signal(signal.SIGINT, _leave)
    from .main import main

    try:
        signal.signal(signal.SIGINT, _interrupt)
        if hasattr(signal, "SIGALRM"):
            signal.signal(signal.SIGALRM, _interrupt)
        code = main(in_child=True)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done
    except KeyboardInterrupt:
        code = _INTERRUPTED
        sys.stderr.write("interrupted\n")
    sys.exit(code)


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, after the import that is under way.

    In the middle of one, libraries in C++ crash, or report that their initialization failed, and importlib drops it.
    """
    while frame is not None and hasattr(signal, "setitimer"):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _SOON)
            return
        frame = frame.f_back
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would leave files behind
    raise KeyboardInterrupt


if __name__ == "__main__":
    run()
