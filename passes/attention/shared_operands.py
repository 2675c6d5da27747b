"""Operands of GroupQueryAttention that layers share: lengths, positions, masks and rotary tables."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from graphpass.analysis.attention.types import Mask
from graphpass.analysis.caches.step_lengths import POSITIONS
from graphpass.analysis.equations.rotation import Rotation, rotation_tables
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.miss import MissError
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import MASKED
from graphpass.ir.writer import Handle, Operand
from graphpass.passes.attention.mask_sums import MaskSums
from graphpass.passes.attention.step_builder import StepBuilder


class SharedOperands:
    """Writes each operand once, for all layers.

    Attributes:
        notes: Rotary embeddings that stay in the graph, each with the reason.
        lengths: Lengths of the step.
    """

    def __init__(self, model: OnnxModel, rewriter: Rewriter) -> None:
        """Write operands for ``model`` when they are first read."""
        self.notes: list[str] = []
        self.lengths = StepBuilder(model, rewriter)
        self._model, self._rewriter = model, rewriter
        self._masks = MaskSums(rewriter)
        self._write = rewriter.under("attention")
        self._made: dict[Hashable, Any] = {}

    def _once(self, key: Hashable, make: Any) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def total(self) -> Handle:
        """Return the total sequence length, i32 scalar."""
        write, lengths = self._write, self.lengths
        return self._once("total", lambda: write.op("Convert", lengths.scalar("total"), to="i32", label="total"))

    def lasts(self) -> Handle:
        """Return the index of the last slot for each row, i32 ``[batch]``."""
        write = self._write

        def make() -> Handle:
            last = write.op("Convert", write.op("Subtract", self.lengths.of("total"), [1]), to="i32", label="last")
            return write.op("Broadcast", last, self.lengths.of("batch"), label="last_of_each")

        return self._once("lasts", make)

    def counts(self) -> Handle:
        """Return the number of tokens of each row less 1, i32 ``[batch]``."""
        write, mask = self._write, self.lengths.mask
        if mask is None:
            return self.lasts()

        def make() -> Handle:
            total = write.op("ReduceSum", write.convert(mask, "i64"), axes=[1], keep=False, label="tokens")
            return write.op("Convert", write.op("Subtract", total, [1]), to="i32", label="last_token")

        return self._once("counts", make)

    def padding_bias(self, kind: str) -> Handle:
        """Return the bias that masks padding, ``[batch, 1, length, total]``, without the causal mask."""
        write, mask = self._write, self.lengths.mask

        def make() -> Handle:
            seen = write.op("Convert", mask, to="boolean", label="seen")
            # With infinity, queries masked for all keys result in NaN, in f16 or with a soft cap (1.31).
            numbers = (write.number(number, kind) for number in (0.0, MASKED))
            rows = write.op("Unsqueeze", write.op("Select", seen, *numbers, label="padding"), axes=[1, 2])
            return write.op("Broadcast", rows, self._square(), label="padding_bias")

        return self._once(("padding", kind), make)

    def _square(self) -> Handle:
        lengths = self.lengths
        return self._once(
            "square", lambda: self._write.op("Concat", [1, 1], lengths.of("length"), lengths.of("total"), axis=0)
        )

    def bias(self, masks: tuple[Mask, ...], kind: str, heads: int, name: str) -> Handle:
        """Return the sum of all masks, ``[1 or batch, 1 or heads, length, total]``.

        Args:
            masks: Masks of one attention, in order.
            kind: Element type of the sum.
            heads: Number of heads of the query.
            name: Prefix of new nodes.
        """
        total = self._masks.of(masks, kind, heads, name)
        return self._once((masks, kind), lambda: self._write.op("Broadcast", total, self._square(), label="bias"))

    def positions(self, counts_slots: bool, counts_tokens: bool) -> Operand:
        """Return positions ``[batch, length]``: the input, slots of the cache, or counted tokens.

        Args:
            counts_slots: Whether the model numbers positions by slots, rather than reading ``position_ids``.
            counts_tokens: Whether padding is not counted.
        """
        if not counts_slots:
            return self._rewriter.graph.parameters[POSITIONS]
        write, lengths = self._write, self.lengths
        if counts_tokens and lengths.mask is not None:
            mask = lengths.mask
            return self._once("counted positions", lambda: self._counted(mask))

        def make() -> Handle:
            bounds = [lengths.scalar(name) for name in ("past", "total")]
            row = write.op("Range", *bounds, write.number(1, "i64"), label="slots")
            shape = write.op("Concat", lengths.of("batch"), [1], axis=0)
            return write.op("Broadcast", row, shape, label="positions")

        return self._once("positions", make)

    def _counted(self, mask: Handle) -> Handle:
        write, lengths = self._write, self.lengths
        past = write.slice(write.convert(mask, "i64"), 0, lengths.of("past"), axis=1, label="past_mask")
        count = write.op("ReduceSum", past, axes=[1], keep=True, label="held")
        steps = write.op("Range", write.number(0, "i64"), lengths.scalar("length"), write.number(1, "i64"))
        return write.op("Add", count, steps, label="counted_positions")

    def tables(self, rotation: Rotation, count: int | None) -> tuple[Handle, Handle] | None:
        """Return tables of cosines and sines ``[count, rotated / 2]``; ``None`` if they are not known.

        Args:
            rotation: The rotary embedding.
            count: Number of positions; ``None`` for no tables.
        """
        if count is None:
            return None

        def make() -> tuple[Handle, Handle] | None:
            try:
                cos, sin = rotation_tables(self._model, rotation, count)
            except MissError as error:
                self.notes.append(f"rotary embedding stays unchanged: {error.miss}")
                return None
            return self._write.constant(cos, "cos_cache"), self._write.constant(sin, "sin_cache")

        made: tuple[Handle, Handle] | None = self._once(("tables", rotation.signature, count), make)
        return made
