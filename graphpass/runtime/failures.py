"""A runtime's exceptions, told as graphpass errors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphpass.errors import GraphpassError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["compiling", "running"]


@contextmanager
def compiling(runtime: str) -> Iterator[None]:
    """Turn what a runtime raises while it takes a model into `UnsupportedError` GP321."""
    with _telling("GP321", f"{runtime} cannot compile the model"):
        yield


@contextmanager
def running(runtime: str) -> Iterator[None]:
    """Turn what a runtime raises while it executes a model into `UnsupportedError` GP322."""
    with _telling("GP322", f"{runtime} failed to run the model"):
        yield


@contextmanager
def _telling(id: str, what: str) -> Iterator[None]:  # noqa: A002 - as in GraphpassError
    try:
        yield
    except GraphpassError:
        raise
    except Exception as error:
        raise UnsupportedError(id, f"{what}: {_first_meaningful_line(error)}") from error


def _first_meaningful_line(error: Exception) -> str:
    # OpenVINO's messages begin with the source lines that they passed through.
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith("Exception from ")]
    return told[0] if told else type(error).__name__
