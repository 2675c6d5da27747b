"""Bound a command in time and memory, and outlive the libraries that it runs.

A model may ask a runtime for 10^15 trips of a loop or for tensors of a terabyte, and a library may crash on it. So a
command works in a child of the program's process, which waits, kills, and reports an error with an id.
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

#: Seconds between two looks at the child, and those that it has to leave its files tidy.
_LOOK, _GRACE = 0.1, 2.0

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGCHLD")

#: The kernel's code of a signal that a terminal sends to the whole group, and option of `prctl` to end with a parent.
_FROM_KERNEL = 0x80
_END_WITH_PARENT = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a command.

    Attributes:
        seconds: Time.
        bytes: Memory without mapped files; ``None`` for the free memory of the machine.
    """

    seconds: float
    bytes: float | None


def limit_options(command: Function) -> Function:
    """Add the options ``--timeout`` and ``--memory``, as one parameter ``limits``."""
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


def go_on_in_child(limits: Limits) -> None:
    """Return in a child process; here, wait for it and exit alike.

    Does nothing on systems without `fork` or `sigtimedwait`.

    Raises:
        PassFailedError: GP406 a signal ended the child; GP407 it took too long.
        UnsupportedError: GP395, it took too much memory.
        Exit: It ended.
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
        raise PassFailedError("GP406", f"the process that worked on the model ended by {name}", hint)
    raise click.exceptions.Exit(code)


def _wait(child: int, limits: Limits, watched: set[signal.Signals]) -> int:
    from graphpass.machine import available_memory

    end = time.monotonic() + limits.seconds
    most = available_memory() if limits.bytes is None else limits.bytes
    while True:
        came = signal.sigtimedwait(watched, _LOOK)
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
    hint = "raise --memory, or run it where there is more" + ("; --no-verify needs less" if verifies else "")
    return UnsupportedError("GP395", f"the command took {in_bytes(used)} of memory, more than {in_bytes(most)}", hint)


def _stop(child: int, grace: float = _GRACE) -> None:
    """End the child, which may leave its files tidy, and its own children."""
    others = _children(child)
    end = time.monotonic() + grace
    os.kill(child, signal.SIGTERM)
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for other in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)


def _children(process: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _memory(process: int) -> int:
    """Return the bytes of a process that no file holds; 0 if unknown."""
    with contextlib.suppress(OSError):
        match = re.search(r"^RssAnon:\s*(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
        return int(match[1]) * 1024 if match is not None else 0
    return 0
