"""The pass `cover-past`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.caches.stepping import weighs_new_tokens
from graphpass.analysis.masks.facts import mask_facts
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import find_input, input_length, integers, named, scalar, token_input
from graphpass.engine.passes import Changed, Pass, PassResult, Skipped, Unchanged
from graphpass.ir.types import Dialect
from graphpass.ir.values import MASKED

if TYPE_CHECKING:
    import openvino

    from graphpass.ir.graph import Graph, Node

__all__ = ["CoverPast"]

_MASK = "attention_mask"


@dataclass(frozen=True)
class CoverPast(Pass[OpenVINOModel]):
    """Let ``attention_mask`` cover past and new tokens where it stands for the new ones alone.

    optimum-intel traces zamba2 so that the mask weighs the hidden states of its linear layers as it is: at a decode
    step it has to be ``[batch, 1]``, which openvino.genai and NPUW do not feed, and padding in the past is attended to.
    Behind this pass linear layers take the mask's last columns, and attention sees each position of the past that the
    mask counts. A mask of the new tokens alone goes on meaning what it meant.

    Shapes:
        attention_mask i64 ``[batch, total]`` instead of ``[batch, length]``; masks of attention ``[batch, 1, length,
        total]``

    Before:
        attention_mask -> Slice(0 : length) -> Unsqueeze -> Multiply(hidden states)
        attention_mask -> .. -> Select(., lowest) ``[batch, 1, length, length]`` -> ScaledDotProductAttention
    After:
        attention_mask -> Slice(total - length :) -> Slice(0 : length) -> Unsqueeze -> Multiply(hidden states)
        LogicalAnd(place of the key <= place of the query, attention_mask) -> Select(0, -65504)
        -> ScaledDotProductAttention
    """

    name: ClassVar[str] = "cover-past"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        from openvino import opset13

        graph, native = model.graph, model.ov_model
        if not any(True for _ in weighs_new_tokens(graph)):
            return Unchanged()
        ids = token_input(native)
        if ids is None:
            return Skipped("the model has no input input_ids whose length says which tokens are new")
        attention = [found.node for found in model.analysis(find_attention)]
        for node in attention:
            if (reason := _hindrance(graph, node)) is not None:
                return Skipped(f"the mask of {node.name} cannot be written anew: {reason}")
        mask = find_input(native, _MASK)
        readers = list(mask.output(0).get_target_inputs())
        total = input_length(native, _MASK, f"{_MASK}/total")
        past = named(opset13.subtract(total, input_length(native, ids, f"{_MASK}/new")), f"{_MASK}/past")
        one = integers([1], f"{_MASK}/1")
        new = named(opset13.slice(mask, past, total, one, one), f"{_MASK}/of_new")
        for reader in readers:
            reader.replace_source_output(new.output(0))
        visible = _visible(mask, past, total)
        written: dict[str, openvino.Node] = {}
        for node in attention:
            element_type = node.native.get_input_element_type(0)
            name = f"{_MASK}/{element_type.to_string()}"
            if name not in written:
                nothing, masked = scalar(0.0, element_type, f"{name}/0"), scalar(MASKED, element_type, f"{name}/low")
                written[name] = named(opset13.select(visible, nothing, masked), name)
            node.native.input(3).replace_source_output(written[name].output(0))
        native.validate_nodes_and_infer_types()
        return Changed(model, {"masks of attention": len(attention)})


def _hindrance(graph: Graph, node: Node) -> str | None:
    """Why the mask of an attention cannot be written anew; ``None`` where nothing hinders."""
    if node.op != "ScaledDotProductAttention":
        return f"it is computed by {node.op}: run fuse-attention"
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    if mask is None or node.native.get_attributes()["causal"]:
        return "it has none of its own"
    facts = mask_facts(graph, mask)
    if facts.unknown is not None or facts.windows or facts.parts != {"causal", "input"}:
        return "it says more than what is later and what is padding"
    return None


def _visible(mask: openvino.Node, past: openvino.Node, total: openvino.Node) -> openvino.Node:
    """Which keys each query sees, boolean ``[batch, 1, length, total]``."""
    from openvino import opset13

    zero, one = integers(0, f"{_MASK}/first"), integers(1, f"{_MASK}/step")
    end, start = opset13.squeeze(total, zero), opset13.squeeze(past, zero)
    keys = opset13.unsqueeze(opset13.range(zero, end, one, "i64"), integers([0, 1, 2], f"{_MASK}/keys_axes"))
    queries = opset13.unsqueeze(opset13.range(start, end, one, "i64"), integers([0, 1, 3], f"{_MASK}/queries_axes"))
    causal = named(opset13.less_equal(keys, queries), f"{_MASK}/causal")
    counted = opset13.unsqueeze(opset13.convert(mask, "boolean"), integers([1, 2], f"{_MASK}/counted_axes"))
    return named(opset13.logical_and(causal, counted), f"{_MASK}/visible")
