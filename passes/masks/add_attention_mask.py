"""The pass `add-attention-mask`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import MASK
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Node, Value
from graphpass.ir.inputs import token_input
from graphpass.ir.values import MASKED
from graphpass.ir.writer import Handle, Writer

_MASK = 3


@dataclass(frozen=True)
class AddAttentionMask(Pass[OpenVINOModel]):
    """Add the input attention_mask to a model that was exported without it.

    NPUW and openvino.genai feed ``attention_mask``, and NPUW pads prompts. With a mask of ones the model computes the
    same as before. Models are unchanged, with the reason, if they have other caches than keys and values, or if
    attention masks by an attribute.

    Shapes:
        attention_mask i64 ``[batch, sequence]``, of past and new tokens

    Before:
        ScaledDotProductAttention(query, key, value, mask)
    After:
        ScaledDotProductAttention(query, key, value, Select(attention_mask, mask, -65504))
    """

    name = "add-attention-mask"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done | Skipped:
        graph, inventory, tokens = model.graph, analyze_caches(model), token_input(model.graph)
        blocks = list(graph.of_op("ScaledDotProductAttention"))
        if MASK in graph.parameters or tokens is None or {cache.kind for cache in inventory.caches} != {"kv"}:
            return Skipped("the model has attention_mask, no input of tokens, or other caches than keys and values")
        if len(blocks) < len(inventory.attention) or any(node.attributes.get("causal") for node in blocks):
            return Skipped("some attention is not ScaledDotProductAttention, or masks by an attribute")
        rewriter = model.rewriter()
        write = rewriter.under(MASK)
        mask = rewriter.input(MASK, "i64", [tokens.shape[0] if tokens.shape else None, None])
        shown = write.op("Unsqueeze", write.op("Convert", mask, to="boolean"), axes=[1, 2], label="shown")
        made: dict[tuple[Value | None, str], Handle] = {}
        for node in blocks:
            key = node.input(_MASK), node.source().element_type
            made[key] = made.get(key) or _masked(write, node, shown)
            rewriter.set_input(node, _MASK, made[key])
        rewriter.finish()
        return Done({"masks padded": len(made)})


def _masked(write: Writer, node: Node, shown: Handle) -> Handle:
    mask, kind = node.input(_MASK), node.source().element_type
    if mask is not None and mask.element_type == "boolean":
        return write.op("LogicalAnd", mask, shown, label="both")
    lowest, nothing = (write.number(number, kind) for number in (MASKED, 0.0))
    return write.op("Select", shown, nothing if mask is None else mask, lowest, label="padded")
