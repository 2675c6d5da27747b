"""`Definition` and `KnownWeight`: what expressions read besides inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from graphpass.analysis.symbolic.expressions import Expr
from graphpass.ir.operators import ARITHMETIC, CASTS


@dataclass(frozen=True, slots=True)
class Definition:
    """A function of indices, whose elements expressions read.

    Attributes:
        kind: ``sum``, ``softmax``, ``top``, ``level``, ``recurrence`` or another function; the operator's name if
            uninterpreted.
        parameters: Parameters of the function besides the bodies, such as attributes.
        bodies: Expressions of the free indices ``v0``, ``v1``, ... and of the bound indices ``r0``, ``r1``, ...
        is_partial: Whether the result may be undefined for some inputs.
    """

    kind: str
    parameters: tuple[Any, ...]
    bodies: tuple[Expr, ...]
    is_partial: bool = field(default=False, compare=False, repr=False)

    @property
    def values(self) -> Expr | None:
        """Return the exclusive upper bound of positions and levels of quantizers; ``None`` for other elements."""
        return self.parameters[-1] if self.kind in {"level", "top"} else None

    @property
    def wraps(self) -> bool:
        """Return whether the elements are results of an uninterpreted operator that exceed their type's range."""
        return self.kind in _WRAPPING


#: Operators on integers that are uninterpreted if their result may be out of range; a quotient is in range.
_WRAPPING = (CASTS | ARITHMETIC | {"Negative", "Power"}) - {"Divide"}


@dataclass(frozen=True, slots=True)
class KnownWeight:
    """A constant in expressions, identified by its contents.

    Attributes:
        digest: Hash of type, shape and elements; of compressed weights, of type and elements.
        name: Name in the first model that has it; ignored by comparisons.
        stored: Hash of the bytes of a compressed weight, whatever integers they store; ``None`` for other weights.
    """

    digest: str
    name: str = field(compare=False, repr=False)
    stored: str | None = field(default=None, compare=False, repr=False)

    @property
    def content(self) -> str:
        """Return a hash of the bytes of compressed weights, and of the values of others."""
        return self.stored or self.digest
