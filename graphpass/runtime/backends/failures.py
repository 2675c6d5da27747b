"""Translate exceptions of runtimes into graphpass errors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from graphpass.errors import GraphpassError, UnsupportedError


def compiling(runtime: str) -> AbstractContextManager[None]:
    """Return a context that turns exceptions of compilation into `UnsupportedError` GP321."""
    return _Translation("GP321", f"{runtime} cannot compile the model")


def running(runtime: str) -> AbstractContextManager[None]:
    """Return a context that turns exceptions of inference into `UnsupportedError` GP322."""
    return _Translation("GP322", f"{runtime} failed to run the model")


class _Translation(AbstractContextManager[None]):
    """A context manager that translates exceptions; as a generator it would be five times slower."""

    __slots__ = ("_failure", "_id")

    def __init__(self, id: str, failure: str) -> None:  # noqa: A002 - as in GraphpassError
        self._id, self._failure = id, failure

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, GraphpassError):
            raise UnsupportedError(self._id, f"{self._failure}: {_first_meaningful_line(error)}") from error


def message_of(error: Exception) -> str:
    """Return the message of a runtime's exception; bytes that are not UTF-8 are escaped.

    Bindings of runtimes raise `UnicodeDecodeError` if a message quotes such bytes, for example an attribute's value.

    Args:
        error: The exception.
    """
    return error.object.decode("utf-8", "backslashreplace") if isinstance(error, UnicodeDecodeError) else str(error)


def _first_meaningful_line(error: Exception) -> str:
    # OpenVINO's messages begin with the source locations of the exception.
    lines = [line.strip() for line in message_of(error).splitlines()]
    return next((line for line in lines if line and not line.startswith("Exception from ")), type(error).__name__)
