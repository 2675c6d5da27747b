"""The pass `zero-padding`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import absorbs_padding
from graphpass.dialects.attributes import native_attributes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Node
from graphpass.ir.inputs import token_input
from graphpass.passes.attention.step_builder import StepBuilder

#: Ports of operands with an axis of new tokens, by operator.
_OPERANDS = {"CausalConvWithState": (0,), "LinearAttention": (0, 1, 2)}


@dataclass(frozen=True)
class ZeroPadding(Pass[OnnxModel]):
    """Set inputs of convolutions and recurrences to 0 at padding.

    The operators have no mask operand. Static models pad the first chunk of a prompt on the left, where states are 0:
    zeros as inputs leave the states unchanged. Padding after a token must be skipped instead, see `mask-padding`. Query
    and value are set to 0 as well, because norms divide zeros by zero.

    Shapes:
        attention_mask ``[batch, past + length]``; input ``[batch, channels, length]``, or with channels last; query,
        key and value ``[batch, length, width]``.

    Before:
        CausalConvWithState(input, ..), LinearAttention(query, key, value, ..)
    After:
        CausalConvWithState(Select(attention_mask, input, 0), ..), LinearAttention(Select(attention_mask, query, 0), ..)
    """

    name = "zero-padding"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done | Skipped:
        caches = analyze_caches(model).of_kind("linear")
        nodes = tuple(model.graph.of_op(*_OPERANDS))
        if not nodes or not any(absorbs_padding(model, cache) for cache in caches):
            return Done()
        rewriter = model.rewriter()
        step = StepBuilder(model, rewriter)
        if step.mask is None or token_input(rewriter.graph) is None:
            return Skipped("the model lacks attention_mask or input_ids, which identify padding")
        is_token = rewriter.under("padding").op("Convert", step.new_columns, to="boolean", label="is_token")
        for node in nodes:
            write = rewriter.under(f"{node.name}/padding")
            kept = write.op("Unsqueeze", is_token, axes=[3 - _axis(node)], label="kept")
            for port in _OPERANDS[node.op]:
                if (value := node.input(port)) is not None:
                    zero = write.number(0.0, value.element_type, "zero")
                    rewriter.redirect(node, port, write.op("Select", kept, value, zero, label="zeroed"))
        rewriter.finish()
        return Done({"operators masked": len(nodes)})


def _axis(node: Node) -> int:
    """Return the axis of new tokens."""
    is_first = node.op == "LinearAttention" or native_attributes(node).get("channels_last", 0)
    return 1 if is_first else 2
