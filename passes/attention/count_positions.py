"""The pass `count-positions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.model import Model


@dataclass(frozen=True)
class CountPositions(Pass[Model]):
    """Compute positions from attention_mask, for models without caches, instead of reading position_ids.

    openvino.genai's TextEmbeddingPipeline (2026.4.1) does not feed ``position_ids``: an embedder that has the input,
    such as Qwen3-Embedding, returns wrong embeddings for texts of more than one token.

    Shapes:
        attention_mask and position_ids ``[batch, length]``; padding has the position of the token before it, or 0

    Before:
        position_ids -> rotary embedding
    After:
        Maximum(CumSum(attention_mask) - 1, 0) -> rotary embedding
    """

    name: ClassVar[str] = "count-positions"

    def run(self, model: Model) -> Done | Skipped:
        graph = model.graph
        positions, mask = (graph.parameters.get(name) for name in ("position_ids", "attention_mask"))
        if positions is None or mask is None or positions.rank != 2 or mask.rank != 2:
            return Skipped("the model has no inputs position_ids and attention_mask [batch, length]")
        if analyze_caches(model).caches:
            return Skipped("the model has caches: its mask covers the past as well")
        rewriter = model.rewriter()
        write, kind = rewriter.under("positions"), positions.element_type
        tokens = write.op("CumSum", write.convert(mask, kind), axis=1, label="tokens")
        last = write.op("Subtract", tokens, write.number(1, kind), label="last")
        rewriter.redirect_uses(positions, write.op("Maximum", last, write.number(0, kind), label="position_ids"))
        rewriter.drop_input("position_ids")
        rewriter.finish()
        return Done({"positions counted": 1})
