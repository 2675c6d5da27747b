"""Write lengths, positions and masks of a step into a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_step_lengths
from graphpass.analysis.caches.step_lengths import MASK, Length
from graphpass.analysis.symbolic.equal_sizes import dimensions, offset
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.errors import UnsupportedError
from graphpass.ir.graph import Value
from graphpass.ir.inputs import PAST_LENGTH, TOKEN_INPUTS, token_input
from graphpass.ir.model import Model
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle


class StepBuilder:
    """Writes lengths, positions and masks, each once, from the shapes of tokens and padding mask.

    The padding mask has the length of past and new tokens together. The shape of a past is not used if the mask has
    it: runtimes may store caches in buffers longer than the sequence.

    Attributes:
        mask: The padding mask, ``[batch, past + length]``; ``None`` without one.
    """

    def __init__(self, model: Model, rewriter: Rewriter, tokens: Value | None = None, *, adds_input: bool = False):
        """Prepare the builder; tensors are written when they are first used.

        Args:
            model: The model.
            rewriter: Its rewriter.
            tokens: The new tokens, ``[batch, length, ..]``; by default, the model's input of tokens.
            adds_input: Whether to add an input for the past's length if the other inputs do not imply it; otherwise
                the length is read from the first KV cache.
        """
        self._model, self._rewriter, self._write = model, rewriter, rewriter.under("lengths")
        mask = rewriter.graph.parameters.get(MASK)
        self.mask = mask if mask is not None and mask.rank == 2 else None
        self._tokens, self._adds_input = tokens or token_input(rewriter.graph), adds_input
        self._made: dict[str, Handle] = {}
        self._shapes: dict[Value, Handle] = {}
        self._vectors: dict[tuple[Expr, ...], Handle] = {}

    @property
    def tokens(self) -> Value:
        """Return the new tokens, ``[batch, length, ..]``.

        Raises:
            UnsupportedError: GP363, the model has no input with the new tokens.
        """
        if self._tokens is None:
            reason = f"the model has no input {' or '.join(TOKEN_INPUTS)} with the new tokens"
            raise UnsupportedError("GP363", reason)
        return self._tokens

    def of(self, length: Length) -> Handle:
        """Return a length, i64 ``[1]``."""
        return self._once(length, lambda: self._length(length))

    def scalar(self, length: Length) -> Handle:
        """Return a length, i64 scalar."""
        return self._once(f"{length}_scalar", lambda: self._scalar(length))

    @property
    def keys(self) -> Handle:
        """Return the slots of keys, i64 ``[1, 1, 1, total]``."""
        return self._once("keys", lambda: self._range([0, 1, 2], 0))

    @property
    def queries(self) -> Handle:
        """Return the slots of queries, i64 ``[1, 1, length, 1]``."""
        return self._once("queries", lambda: self._range([0, 1, 3], self.scalar("past")))

    @property
    def causal(self) -> Handle:
        """Return the causal mask, boolean ``[1, 1, length, total]``."""
        return self._once("causal", lambda: self._write.op("LessEqual", self.keys, self.queries, label="causal"))

    @property
    def visible(self) -> Handle:
        """Return the causal mask without padding, boolean ``[batch, 1, length, total]``."""
        write = self._write

        def make() -> Handle:
            counted = write.op("Unsqueeze", write.op("Convert", self.mask, to="boolean"), axes=[1, 2], label="counted")
            return write.op("LogicalAnd", self.causal, counted, label="visible")

        return self._once("visible", make)

    @property
    def new_columns(self) -> Handle:
        """Return the columns of the padding mask for the new tokens, ``[batch, length]``."""
        write = self._write

        def make() -> Handle:
            start = write.op("Negative", self.of("length"))
            return write.slice(self.mask, start, None, axis=1, label="new_columns")

        return self._once("new columns", make)

    def knows(self, sizes: Iterable[Expr]) -> bool:
        """Return whether ``sizes`` are linear in lengths of the step."""
        return all(dimension in self._dimensions for size in sizes for dimension, _ in dimensions(size))

    def vector(self, sizes: tuple[Expr, ...]) -> Handle:
        """Return a vector of ``sizes``, i64; see `knows`."""
        if sizes not in self._vectors:
            parts = [self._size(size) for size in sizes]
            self._vectors[sizes] = parts[0] if len(parts) == 1 else self._write.op("Concat", *parts, axis=0)
        return self._vectors[sizes]

    @cached_property
    def _dimensions(self) -> dict[Expr, Length]:
        return self._model.analysis(find_step_lengths)

    def _once(self, name: str, make: Callable[[], Handle]) -> Handle:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def _length(self, length: Length) -> Handle:
        write = self._write
        if (source := self._source(length)) is not None:
            value, axis = source
            return write.size(value, axis, label=length, shape=self._shape(value))
        if length != "past":
            return write.op("Add", self.of("past"), self.of("length"), label=length)
        if self._adds_input and (self.mask is None or self._tokens is None):
            return self._rewriter.input(PAST_LENGTH, "i64", [1])
        return write.op("Subtract", self.of("total"), self.of("length"), label=length)

    def _scalar(self, length: Length) -> Handle:
        write = self._write
        if (source := self._source(length)) is None:
            return write.op("Squeeze", self.of(length), axes=[0])
        value, axis = source
        return write.op("Gather", self._shape(value), write.number(axis, "i64"), axis=0, label=f"{length}_scalar")

    def _source(self, length: Length) -> tuple[Value, int] | None:
        """Return a value and an axis of it with this length, if known."""
        if length in {"batch", "length"}:
            return self.tokens, 0 if length == "batch" else 1
        if self.mask is not None:
            return (self.mask, 1) if length == "total" else None
        if length == "total" or self._adds_input:
            return None
        past = analyze_caches(self._model).of_kind("kv")[0]
        return self._rewriter.graph.reads[past.read].outputs[0], past.axes.sequence or 0

    def _shape(self, value: Value) -> Handle:
        if value not in self._shapes:
            self._shapes[value] = self._write.op("ShapeOf", value)
        return self._shapes[value]

    def _range(self, axes: list[int], start: int | Handle) -> Handle:
        slots = self._write.op("Range", start, self.scalar("total"), 1)
        return self._write.op("Unsqueeze", slots, axes=axes, label="queries" if start else "keys")

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
