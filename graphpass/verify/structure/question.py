"""Results of two models to compare, and conditions of the comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphpass.analysis.symbolic.expressions import Expr
from graphpass.ir.graph import Value
from graphpass.verify.structure.leaves import CacheWindow


@dataclass(frozen=True, slots=True)
class ComparedResult:
    """A result of both models: an output, or a cache after the step.

    Attributes:
        name: Name in the reference.
        reference: Value in the reference.
        candidate: Value in the candidate; ``None`` without a value of the same rank, and of the type of an output.
        orders: Axes of both values, in a common order.
        windows: For each model, the part to compare if its value is larger.
    """

    name: str
    reference: Value
    candidate: Value | None
    orders: tuple[tuple[int, ...], tuple[int, ...]]
    windows: tuple[CacheWindow | None, CacheWindow | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor of both models that is assumed to be equal, such as a cache.

    Attributes:
        reference: Value in the reference.
        candidate: Value in the candidate.
        orders: Axes of both values, in a common order.
    """

    reference: Value
    candidate: Value
    orders: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Question:
    """Results of a comparison, and its conditions.

    Attributes:
        outputs: Names of outputs of the reference. Caches are compared, too.
        results: Further results.
        given: Tensors that are assumed to be equal.
        lengths: For each model, lengths to replace, such as the past by 0 if it is empty.
        further: Names of outputs of the candidate that the reference lacks.
    """

    outputs: tuple[str, ...] = ()
    results: tuple[ComparedResult, ...] = ()
    given: tuple[Given, ...] = ()
    lengths: tuple[Mapping[Expr, Expr], Mapping[Expr, Expr]] = ({}, {})
    further: tuple[str, ...] = ()
