"""Write the lengths of a step from the shapes of tokens and padding mask."""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.caches.step_lengths import MASK, Length
from graphpass.analysis.equations.steps import find_step_lengths
from graphpass.analysis.symbolic.equal_sizes import dimensions, offset
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Value
from graphpass.ir.inputs import TOKEN_INPUTS, token_input
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Handle, Rewriter


class StepLengths:
    """Writes each length once.

    The padding mask is as long as past and new tokens together; the past's own shape is no length where runtimes keep
    caches in buffers of more room.
    """

    def __init__(self, model: Model, rewriter: Rewriter, past: Cache) -> None:
        """Write with ``rewriter``.

        Args:
            model: The model.
            rewriter: Its rewriter.
            past: A growing cache, whose length counts in a model without padding mask.

        Raises:
            UnsupportedError: GP363, no input holds the new tokens.
        """
        graph = rewriter.graph
        tokens, mask = token_input(graph), graph.parameters.get(MASK)
        if tokens is None:
            reason = f"no input is called {' or '.join(TOKEN_INPUTS)}: nothing tells the new tokens"
            raise UnsupportedError("GP363", reason)
        self._tokens = tokens
        #: The padding mask, ``[batch, past + length]``.
        self.mask = mask if mask is not None and mask.rank == 2 else None
        self._past, self._axis = graph.reads[past.read].outputs[0], past.axes.sequence or 0
        self._dimensions: dict[Expr, Length] = model.analysis(find_step_lengths)
        self._write = rewriter.under("lengths")
        self._made: dict[Length, Handle] = {}
        self._shapes: dict[Value, Handle] = {}
        self._vectors: dict[tuple[Expr, ...], Handle] = {}

    def of(self, length: Length) -> Handle:
        """Return a length, i64 ``[1]``."""
        if length not in self._made:
            self._made[length] = self._length(length)
        return self._made[length]

    def _length(self, length: Length) -> Handle:
        write = self._write
        if (place := self._place(length)) is not None:
            value, axis = place
            return write.slice(self._shape(value), axis, axis + 1, 0, label=length)
        if length == "past":
            return write.op("Subtract", self.of("total"), self.of("length"), label=length)
        return write.op("Add", self.of("past"), self.of("length"), label=length)

    def scalar(self, length: Length) -> Handle:
        """Return a length, i64 without dimensions."""
        write = self._write
        if (place := self._place(length)) is None:
            return write.op("Squeeze", self.of(length), axes=[0])
        value, axis = place
        return write.op("Gather", self._shape(value), write.number(axis, "i64"), axis=0, label=f"{length}_scalar")

    def _place(self, length: Length) -> tuple[Value, int] | None:
        """Return the input and axis that have this length, if one has it."""
        if length in {"batch", "length"}:
            return self._tokens, 0 if length == "batch" else 1
        if length == ("past" if self.mask is None else "total"):
            return (self._past, self._axis) if self.mask is None else (self.mask, 1)
        return None

    def _shape(self, value: Value) -> Handle:
        if value not in self._shapes:
            self._shapes[value] = self._write.op("ShapeOf", value)
        return self._shapes[value]

    def knows(self, sizes: Iterable[Expr]) -> bool:
        """Return whether ``sizes`` are lengths of the step, or numbers."""
        return all(dimension in self._dimensions for size in sizes for dimension, _ in dimensions(size))

    def vector(self, sizes: tuple[Expr, ...]) -> Handle:
        """Return ``sizes``, i64; see `knows`."""
        if sizes not in self._vectors:
            parts = [self._size(size) for size in sizes]
            self._vectors[sizes] = parts[0] if len(parts) == 1 else self._write.op("Concat", *parts, axis=0)
        return self._vectors[sizes]

    def _size(self, size: Expr) -> Handle:
        counts: dict[Length, int] = {}
        for dimension, factor in dimensions(size):
            length = self._dimensions[dimension]
            counts[length] = counts.get(length, 0) + factor
        if counts.get("past", 0) and counts.get("past") == counts.get("length"):
            counts["total"] = counts.get("total", 0) + counts.pop("past")
            del counts["length"]
        terms = [
            self.of(length) if factor == 1 else self._write.op("Multiply", self.of(length), [factor])
            for length, factor in counts.items()
            if factor
        ]
        number = offset(size)
        if number or not terms:
            terms.append([number])
        total = terms[0]
        for term in terms[1:]:
            total = self._write.op("Add", total, term)
        return total
