"""Every error that graphpass raises on purpose, under one root.

An error carries a stable id (``GP1203``), a message that says which file, node or dimension, a hint that says what to
do next, and through its class the exit code of the command line. Ids never change their meaning.

=====  ==========================================  =========
ids    what                                        exit code
=====  ==========================================  =========
GP1xx  cannot read a model                         3
GP2xx  the caller's request is not well formed     2
GP3xx  unsupported, or a precondition fails        4
GP4xx  a pass failed                               5
GP5xx  cannot write                                6
GP6xx  verification failed                         1
=====  ==========================================  =========
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "GraphpassError",
    "PassFailedError",
    "PreconditionError",
    "ReadError",
    "UnsupportedError",
    "UsageError",
    "VerificationError",
    "WriteError",
]


class GraphpassError(Exception):
    """The root of all graphpass errors.

    Attributes:
        id: Stable identifier, for example ``"GP101"``.
        message: What is wrong, naming the file, node or dimension.
        hint: What to do next; ``None`` where nothing useful can be said.
        exit_code: What the command line exits with.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, id: str, message: str, hint: str | None = None) -> None:  # noqa: A002 - the field's name
        """Create an error.

        Args:
            id: Stable identifier.
            message: What is wrong.
            hint: What to do next.
        """
        super().__init__(message)
        self.id = id
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.id}: {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[type[GraphpassError], tuple[str, str, str | None]]:
        return type(self), (self.id, self.message, self.hint)


class ReadError(GraphpassError):
    """A model file is missing, damaged or of no known format."""

    exit_code = 3


class UsageError(GraphpassError):
    """The caller asked for something that is not well formed: an unknown pass, a bad option, a bad pipeline text."""

    exit_code = 2


class UnsupportedError(GraphpassError):
    """The model holds something that cannot be handled; the message names it."""

    exit_code = 4


class PreconditionError(UnsupportedError):
    """What a pass or a target needs to hold before does not hold."""


class PassFailedError(GraphpassError):
    """A pass failed half-way; the input model is as it was."""

    exit_code = 5


class WriteError(GraphpassError):
    """A result could not be written; an older result is untouched."""

    exit_code = 6


class VerificationError(GraphpassError):
    """Two models do not compute the same."""

    exit_code = 1
