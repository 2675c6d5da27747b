"""The pass `chunks-from-positions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.mask import plain_mask
from graphpass.analysis.caches.masks import find_masks
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.passes.attention.step_builder import StepBuilder
from graphpass.passes.masks.window_from_positions import check_inputs, positions_of_tokens
from graphpass.passes.masks.window_mask import Window, WindowWriter, masks_of, window_slots


@dataclass(frozen=True)
class ChunksFromPositions(Pass[OpenVINOModel]):
    """Limit attention to chunks of positions instead of slots of the cache (Llama 4).

    Exported masks divide slots by the size of a chunk. NPUW has free slots between the past and the new tokens, so that
    slots are other positions there. After this pass the position of a past key is the running sum of
    ``attention_mask``, and the position of a new token is its ``position_ids``. Masks that hide other positions, too,
    are unchanged, with a note.

    Shapes:
        attention_mask i64 ``[batch, sequence]``, position_ids i64 ``[batch, length]``; mask ``[batch, 1, length,
        sequence]``

    Before:
        Equal(FloorDivide(slot of the key, size), FloorDivide(slot of the query, size)) -> .. -> Select
        -> ScaledDotProductAttention
    After:
        Equal(Divide(Concat(CumSum(attention_mask)[: past] - 1, position_ids), size), Divide(position_ids, size)) -> ..
        -> Select -> ScaledDotProductAttention

    Raises:
        PreconditionError: GP361, no input position_ids; GP364, no input attention_mask ``[batch, sequence]``.
    """

    name = "chunks-from-positions"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        read = list(_chunks(model))
        chunks = [window for window in read if isinstance(window, Window)]
        notes = tuple(str(miss) for miss in read if isinstance(miss, Miss))
        if not chunks:
            return Done(notes=notes)
        check_inputs(model.graph)
        rewriter = model.rewriter()
        slots = window_slots(model, rewriter)
        assert slots is not None, "a model with attention_mask, position_ids and caches has an input of tokens"
        writer = WindowWriter(rewriter, positions_of_tokens(rewriter, StepBuilder(model, rewriter)), slots)
        for chunk in chunks:
            writer.replace(chunk)
        rewriter.finish()
        return Done({"chunks from positions": len(chunks), "masks": len(writer)}, notes)


def _chunks(model: Model) -> Iterator[Window | Miss]:
    """Yield masks with chunks of slots, and misses for those that hide others."""
    for attention, mask in zip(model.analysis(find_attention), model.analysis(find_masks), strict=True):
        if mask.chunk is None or mask.reads_positions:
            continue
        plain = plain_mask(replace(mask, chunk=None))
        yield plain if isinstance(plain, Miss) else masks_of(model.graph, attention, mask)
