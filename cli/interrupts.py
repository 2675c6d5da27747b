"""Answer interrupts: Ctrl-C, and SIGTERM as CI systems send it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

TYPE_CHECKING = False  # as of typing, which takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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
        signal.signal(number, _after_imports(lambda _: KeyboardInterrupt()))


def exit_at(numbers: Iterable[signal.Signals]) -> None:
    """Exit with 128 and the number of the first of these signals."""
    for number in numbers:
        signal.signal(number, _after_imports(lambda came: SystemExit(128 + came)))


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


def _after_imports(made: Callable[[int], BaseException]) -> Callable[[int, FrameType | None], None]:
    """Return a handler that raises an exception after the import that is under way.

    In the middle of one, libraries in C++ crash, or report that their initialization failed, and importlib drops it.
    Python drops what callbacks of weak references and ``__del__`` raise, so that it is raised again after these.
    """

    def answer(number: int, frame: FrameType | None) -> None:
        ignore_interrupts()
        raised = made(number)

        def drop(dropped: sys.UnraisableHookArgs) -> None:
            if dropped.exc_value is raised:
                again()
            else:
                sys.__unraisablehook__(dropped)

        def again() -> None:
            signal.signal(signal.SIGALRM, lambda _, later: answer(number, later))
            signal.setitimer(signal.ITIMER_REAL, _SOON)

        if hasattr(signal, "setitimer"):
            while frame is not None:
                if frame.f_code.co_filename.startswith("<frozen importlib"):
                    again()
                    return
                frame = frame.f_back
            sys.unraisablehook = drop
        raise raised

    return answer
