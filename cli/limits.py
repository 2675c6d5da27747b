"""Limits of time and memory for a command, and isolation from crashes of libraries.

A hostile model may have a loop of 10^15 iterations or tensors of a terabyte, or may crash a library. Commands that read
models therefore run in a child process. The parent waits, ends the child at a limit, and reports an error with an id.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from graphpass.errors import GraphpassError, PassFailedError, UnsupportedError

from .interrupts import exit_at

Function = TypeVar("Function", bound=Callable[..., Any])

_TIMES = {"s": 1, "min": 60, "h": 3600}
_SIZES = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}

#: Seconds between two checks of the child, and seconds that the child has for its cleanup.
_INTERVAL, _GRACE = 0.1, 2.0

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD")

#: ``si_code`` of signals that a terminal sends to the whole process group; ``PR_SET_PDEATHSIG`` of `prctl`.
_FROM_KERNEL = 0x80
_END_WITH_PARENT = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a command.

    Attributes:
        seconds: Time limit.
        bytes: Memory limit, mapped files excluded; ``None`` for the free memory of the machine.
    """

    seconds: float
    bytes: float | None


def limit_options(command: Function) -> Function:
    """Add the options ``--timeout`` and ``--memory``.

    Returns:
        ``command`` with the options.
    """
    options = (
        click.option(
            "--timeout",
            default="1h",
            show_default=True,
            metavar="90s|10min|2h",
            callback=_reader(_TIMES, "time such as 90s, 10min or 2h"),
            help="Stop after this time.",
        ),
        click.option(
            "--memory",
            metavar="8GB",
            callback=_reader(_SIZES, "size such as 500MB or 8GB"),
            help="Stop above this much memory, mapped files excepted; by default the free memory.",
        ),
    )
    made: Any = command
    for option in reversed(options):
        made = option(made)
    return made  # type: ignore[no-any-return]


def _reader(units: dict[str, int], expected: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def read(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
        if text is None:
            return None
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", text)
        if match is None or match[2] not in units:
            raise click.BadParameter(f"expected a {expected}, got {text!r}", context, parameter)
        return float(match[1]) * units[match[2]]

    return read


def continue_in_child(limits: Limits) -> None:
    """Fork, and return in the child; the parent waits and exits with the child's code.

    Does nothing on systems without `fork` or `sigtimedwait`.

    Raises:
        PassFailedError: GP406, a signal ended the child; GP407, the child exceeded the time limit.
        UnsupportedError: GP395, the child exceeded the memory limit.
        Exit: The child ended.
    """
    if not (hasattr(os, "fork") and hasattr(signal, "sigtimedwait")):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    watched = {getattr(signal, name) for name in _SIGNALS}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            import ctypes

            ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
        exit_at((signal.SIGTERM, signal.SIGHUP))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    try:
        code = _wait(child, limits, watched)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if code < 0:
        name = signal.Signals(-code).name
        hint = "a library crashed on this model, or the system ran out of memory; the model may be damaged"
        raise PassFailedError("GP406", f"signal {name} ended the command", hint)
    raise click.exceptions.Exit(code)


def _wait(child: int, limits: Limits, watched: set[signal.Signals]) -> int:
    from graphpass.machine import available_memory

    end = time.monotonic() + limits.seconds
    most = available_memory() if limits.bytes is None else limits.bytes
    while True:
        came = signal.sigtimedwait(watched, _INTERVAL)
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if came is not None and came.si_signo != signal.SIGCHLD and came.si_code != _FROM_KERNEL:
            os.kill(child, came.si_signo)
        if time.monotonic() > end:
            _stop(child)
            hint = "raise --timeout, unless the model has a loop that does not end"
            raise PassFailedError("GP407", f"the command did not end within {limits.seconds:g} s", hint)
        if (used := sum(map(_memory, (child, *_children(child))))) > most:
            _stop(child, grace=0)
            raise _too_large(used, most)


def _too_large(used: int, most: float) -> GraphpassError:
    from graphpass.reports.text import in_bytes

    command = click.get_current_context().command
    verifies = any("--no-verify" in option.secondary_opts for option in command.params)
    hint = "raise --memory, or use a machine with more memory" + ("; --no-verify requires less" if verifies else "")
    return UnsupportedError("GP395", f"the command took {in_bytes(used)} of memory, more than {in_bytes(most)}", hint)


def _stop(child: int, grace: float = _GRACE) -> None:
    """End the child after its cleanup, or after ``grace`` seconds, and kill the child's children."""
    grandchildren = _children(child)
    end = time.monotonic() + grace
    os.kill(child, signal.SIGTERM)
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        signal.sigtimedwait({signal.SIGCHLD}, _INTERVAL)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for process in grandchildren:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _children(process: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _memory(process: int) -> int:
    """Return the anonymous memory of a process in bytes; 0 if unknown."""
    with contextlib.suppress(OSError):
        match = re.search(r"^RssAnon:\s*(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
        return int(match[1]) * 1024 if match is not None else 0
    return 0
