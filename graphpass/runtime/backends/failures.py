"""A runtime's exceptions, told as graphpass errors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from graphpass.errors import GraphpassError, UnsupportedError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["compiling", "running"]


def compiling(runtime: str) -> AbstractContextManager[None]:
    """Turn what a runtime raises while it takes a model into `UnsupportedError` GP321."""
    return _Telling("GP321", f"{runtime} cannot compile the model")


def running(runtime: str) -> AbstractContextManager[None]:
    """Turn what a runtime raises while it executes a model into `UnsupportedError` GP322."""
    return _Telling("GP322", f"{runtime} failed to run the model")


class _Telling(AbstractContextManager[None]):
    """A class, not a generator: it is entered at every step, and takes a fifth of the time."""

    __slots__ = ("_id", "_what")

    def __init__(self, id: str, what: str) -> None:  # noqa: A002 - as in GraphpassError
        self._id, self._what = id, what

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, GraphpassError):
            raise UnsupportedError(self._id, f"{self._what}: {_first_meaningful_line(error)}") from error


def _first_meaningful_line(error: Exception) -> str:
    # OpenVINO's messages begin with the source lines that they passed through.
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith("Exception from ")]
    return told[0] if told else type(error).__name__
