"""Leaves of expressions: inputs, and caches in a common form of both models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Index
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.ir.graph import Value


@dataclass(frozen=True, slots=True)
class CacheWindow:
    """The part of a cache that corresponds to the other model's smaller cache.

    Attributes:
        axis: The axis along which the caches differ in size.
        first: First index of the part.
        count: Size of the part.
        is_filled: Whether elements outside the part are 0.
    """

    axis: int
    first: int
    count: int
    is_filled: bool

    def shifted(self, index: Index, places: int) -> Index:
        """Return an index moved along the axis.

        Args:
            index: Index into the cache or the part.
            places: Number to add; ``first`` to convert an index into the part to one into the cache.
        """
        moved = ex.add(index[self.axis], ex.number(places))
        return (*index[: self.axis], moved, *index[self.axis + 1 :])


@dataclass(frozen=True, slots=True)
class Leaf:
    """The content of a cache before the step, the same in both models.

    Attributes:
        name: Its name in both.
        order: Axes of the tensor, in the order of the common form.
        batch: The batch axis; ``None`` without one.
        is_cut: Whether slots are moved and trimmed before other operators read the cache, so that its size is free.
        selectors: Inputs such as ``beam_idx`` that select rows in this model; rows of the other model's cache are
            selected between steps.
        window: The part that corresponds to the other model's cache, if that is smaller.
        past: Returns an element in terms of the other model's caches, if these differ in kind, such as latents.
    """

    name: str
    order: tuple[int, ...]
    batch: int | None
    is_cut: bool = False
    selectors: frozenset[str] = frozenset()
    window: CacheWindow | None = None
    past: Callable[[Index], Expr] | None = None

    def place(self, index: Index) -> Index:
        """Return the index in the common form of an element of the tensor."""
        return tuple(index[axis] for axis in self.order)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Interpretation of one model's inputs and variables; nodes are given by index.

    Attributes:
        lengths: Batch, past and new tokens as expressions, by dimension.
        bits: Parameters whose elements are 0 or 1.
        leaves: Leaves of caches, by the node that reads the cache.
        known: Expression of an input: 1 for a mask, the past for positions, to which the index of the token is added.
        moves: Caches, by the node that trims them after their slots are moved; its result is read as the leaf.
    """

    lengths: Mapping[Expr, Expr]
    bits: frozenset[int]
    leaves: Mapping[int, Leaf]
    known: Mapping[int, Expr]
    moves: Mapping[int, Value]
