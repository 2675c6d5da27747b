"""Define every error that graphpass raises on purpose, under one root.

An error carries a stable id (``GP203``), a message that names the file, node or dimension, a hint on the next step, and
through its class the exit code of the command line. Ids never change their meaning.

=====  ==========================================  =========
ids    meaning                                     exit code
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


class GraphpassError(Exception):
    """Carries an id, a message, a hint and an exit code.

    Args:
        id: Stable identifier, for example ``"GP101"``.
        message: The failure.
        hint: The next step.

    Attributes:
        id: Stable identifier, for example ``"GP101"``.
        message: The failure, with the file, node or dimension.
        hint: The next step; ``None`` if none is useful.
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
    """Reports a model file that is missing, damaged or of no known format.

    Examples:
        >>> from graphpass import ReadError
        >>> ReadError("GP101", "the message").exit_code
        3
    """

    exit_code = 3


class UsageError(GraphpassError):
    """Reports a request that is not well formed.

    Examples:
        >>> from graphpass import UsageError
        >>> UsageError("GP211", "the message").exit_code
        2
    """

    exit_code = 2


class UnsupportedError(GraphpassError):
    """Reports a part of a model that cannot be handled.

    Examples:
        >>> from graphpass import UnsupportedError
        >>> UnsupportedError("GP310", "the message").exit_code
        4
    """

    exit_code = 4


class PreconditionError(UnsupportedError):
    """Reports a precondition of a pass or target that does not hold.

    Examples:
        >>> from graphpass import PreconditionError
        >>> PreconditionError("GP301", "the message").exit_code
        4
    """


class PassFailedError(GraphpassError):
    """Reports a pass that failed half-way; the input model is unchanged.

    Examples:
        >>> from graphpass import PassFailedError
        >>> PassFailedError("GP401", "the message").exit_code
        5
    """

    exit_code = 5


class WriteError(GraphpassError):
    """Reports a result that could not be written; an older result is untouched.

    Examples:
        >>> from graphpass import WriteError
        >>> WriteError("GP501", "the message").exit_code
        6
    """

    exit_code = 6


class VerificationError(GraphpassError):
    """Reports two models that do not compute the same.

    Examples:
        >>> from graphpass import VerificationError
        >>> VerificationError("GP601", "the message").exit_code
        1
    """

    exit_code = 1
