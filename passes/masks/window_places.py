"""Count places in the cache as NPUW does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import past_of
from graphpass.ir.inputs import SOURCE_SLOTS, token_input

if TYPE_CHECKING:
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.ir.graph import Value
    from graphpass.ir.rewriter import Handle, Rewriter


@dataclass(frozen=True, slots=True)
class Places:
    """Values that imply how many places of a cache are in use.

    Attributes:
        past: The past of a cache, which may be reordered by beams.
        axis: Its axis of positions.
        tokens: The new tokens ``[batch, length, ..]``.
        mask: The padding mask ``[batch, past + length]`` if slots are moved and cut: the past has any number then.
    """

    past: Value
    axis: int
    tokens: Value
    mask: Value | None = None

    @classmethod
    def of(cls, model: OpenVINOModel) -> Places | None:
        """Return those of the first KV cache."""
        caches, tokens = analyze_caches(model).of_kind("kv"), token_input(model.graph)
        if not caches or tokens is None:
            return None
        read, parameters = model.graph.reads[caches[0].read], model.graph.parameters
        mask = parameters.get("attention_mask") if SOURCE_SLOTS in parameters else None
        return cls(past_of(model.graph, read), caches[0].axes.sequence or 0, tokens, mask)

    def write(self, rewriter: Rewriter) -> tuple[Handle, Handle]:
        """Make places of keys ``[1, 1, 1, sequence]`` and queries ``[1, 1, length, 1]``, as NPUW knows them.

        Its phi3_sliding_mask.cpp wants ranges from and to the length that a Gather takes of a cache, and an Unsqueeze
        for each axis.
        """
        write = rewriter.under("window")
        counted = (self.past, self.axis, "past") if self.mask is None else (self.mask, 1, "total")
        count, new = (
            write.op("Gather", write.op("ShapeOf", value), axis, axis=0, label=label)
            for value, axis, label in (counted, (self.tokens, 1, "new"))
        )
        past = count if self.mask is None else write.op("Subtract", count, new, label="past")
        whole = write.op("Add", past, new, label="whole")
        made = []
        for start, axes, label in ((0, (0, 1, 2), "keys"), (past, (0, 1, 3), "queries")):
            places = write.op("Range", start, whole, 1, label=f"{label}_range")
            for axis in axes:
                places = rewriter.op("Unsqueeze", places, axis, name=f"window/{label}_{axis}")
            made.append(places)
        return made[0], made[1]
