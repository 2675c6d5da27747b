"""Answer interrupts: Ctrl-C, and SIGTERM as CI systems send it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

TYPE_CHECKING = False  # as of typing, which takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

INTERRUPTED = 130

#: Seconds until the next try to interrupt.
_SOON = 0.02

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def leave_at_once() -> None:
    """End at an interrupt; nothing is begun yet that would have to be tidied."""
    for number in _SIGNALS:
        signal.signal(number, _leave)


def raise_interrupts() -> None:
    """Raise KeyboardInterrupt at the first interrupt, and ignore further ones.

    A second one would stop the tidying that the first began.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _interrupt)


def ignore_interrupts() -> None:
    """Ignore interrupts from now on."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Ignore interrupts during the context, in the main thread, which alone gets them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    ignore_interrupts()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, after the import that is under way.

    In the middle of one, libraries in C++ crash, or report that their initialization failed, and importlib drops it.
    """
    ignore_interrupts()
    while frame is not None and hasattr(signal, "setitimer"):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _SOON)
            return
        frame = frame.f_back
    raise KeyboardInterrupt
