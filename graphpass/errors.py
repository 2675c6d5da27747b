"""All errors that graphpass raises deliberately, with one base class.

An error has a stable id (``GP203``), a message that names the file, node or dimension, and a hint for the next step.
Its class determines the exit code of the command line. The meaning of an id never changes.

=====  ==========================================  =========
ids    meaning                                     exit code
=====  ==========================================  =========
GP1xx  cannot read a model                         3
GP2xx  the request is invalid                     2
GP3xx  unsupported, or a precondition fails        4
GP4xx  a pass failed                               5
GP5xx  cannot write                                6
GP6xx  verification failed                         1
=====  ==========================================  =========
"""

from __future__ import annotations

from typing import ClassVar


class GraphpassError(Exception):
    """Base class of all errors, with id, message, hint and exit code.

    Args:
        id: Stable identifier, for example ``"GP101"``.
        message: Description of the failure.
        hint: The next step.

    Attributes:
        id: Stable identifier, for example ``"GP101"``.
        message: Description of the failure, with the file, node or dimension.
        hint: The next step; ``None`` without advice.
        exit_code: Exit code of the command line.

    Examples:
        >>> import graphpass
        >>> try:
        ...     graphpass.load("missing.onnx")
        ... except graphpass.GraphpassError as error:
        ...     error.id, error.message, error.exit_code
        ('GP101', 'missing.onnx does not exist', 3)
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, id: str, message: str, hint: str | None = None) -> None:  # noqa: A002 - the field's name
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
    """A model file is missing, damaged or of unknown format.

    Examples:
        >>> from graphpass import ReadError
        >>> ReadError("GP101", "the message").exit_code
        3
    """

    exit_code = 3


class UsageError(GraphpassError):
    """The request is invalid.

    Examples:
        >>> from graphpass import UsageError
        >>> UsageError("GP211", "the message").exit_code
        2
    """

    exit_code = 2


class UnsupportedError(GraphpassError):
    """A part of a model is not supported.

    Examples:
        >>> from graphpass import UnsupportedError
        >>> UnsupportedError("GP310", "the message").exit_code
        4
    """

    exit_code = 4


class PreconditionError(UnsupportedError):
    """A precondition of a pass or target does not hold.

    Examples:
        >>> from graphpass import PreconditionError
        >>> PreconditionError("GP301", "the message").exit_code
        4
    """


class PassFailedError(GraphpassError):
    """A pass failed; the input model is unchanged.

    Examples:
        >>> from graphpass import PassFailedError
        >>> PassFailedError("GP401", "the message").exit_code
        5
    """

    exit_code = 5


class WriteError(GraphpassError):
    """A result cannot be written; an existing result is unchanged.

    Examples:
        >>> from graphpass import WriteError
        >>> WriteError("GP501", "the message").exit_code
        6
    """

    exit_code = 6


class VerificationError(GraphpassError):
    """Two models compute different results.

    Examples:
        >>> from graphpass import VerificationError
        >>> VerificationError("GP601", "the message").exit_code
        1
    """

    exit_code = 1
