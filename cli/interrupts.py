"""Handling of interrupts: Ctrl-C, and SIGTERM as sent by CI systems."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

TYPE_CHECKING = False  # importing typing takes longer than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

INTERRUPTED = 130

#: Seconds until a deferred interrupt is raised again.
_RETRY = 0.02

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def leave_at_once() -> None:
    """Exit at an interrupt without cleanup; for the time before a command starts."""
    for number in _SIGNALS:
        signal.signal(number, _leave)


def raise_interrupts() -> None:
    """Raise KeyboardInterrupt at the first interrupt, and ignore later ones.

    A second interrupt would abort the cleanup after the first.
    """
    for number in _SIGNALS:
        signal.signal(number, _after_imports(lambda _: KeyboardInterrupt()))


def exit_at(numbers: Iterable[signal.Signals]) -> None:
    """Exit with code 128 + N at the first of these signals, number N."""
    for number in numbers:
        signal.signal(number, _after_imports(lambda received: SystemExit(128 + received)))


def ignore_interrupts() -> None:
    """Ignore interrupts from now on."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Ignore interrupts inside the context.

    Other threads than the main thread receive no signals, so they change nothing.
    """
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


def _after_imports(exception_for: Callable[[int], BaseException]) -> Callable[[int, FrameType | None], None]:
    """Return a signal handler that raises an exception, but not during an import.

    During an import, an exception may crash C++ libraries or make their initialization fail, and importlib may discard
    it. Python also discards exceptions raised in callbacks of weak references and in ``__del__``. In both cases the
    exception is raised again later.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        ignore_interrupts()
        raised = exception_for(number)

        def drop(dropped: sys.UnraisableHookArgs) -> None:
            if dropped.exc_value is raised:
                again()
            else:
                sys.__unraisablehook__(dropped)

        def again() -> None:
            signal.signal(signal.SIGALRM, lambda _, later: handle(number, later))
            signal.setitimer(signal.ITIMER_REAL, _RETRY)

        if hasattr(signal, "setitimer"):
            while frame is not None:
                if frame.f_code.co_filename.startswith("<frozen importlib"):
                    again()
                    return
                frame = frame.f_back
            sys.unraisablehook = drop
        raise raised

    return handle
