"""The contract of paged attention, openvino.genai's default backend: SDPAToPagedAttention takes every cache.

The mask goes, and with it all that the transformation does not read from it; positions become an input.

Rules, of openvino: ``sdpa_to_paged_attention.cpp`` and the matchers beside it; measured on 2026.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.attention.rotary import moved_positions
from graphpass.analysis.masks.constants import constant_window
from graphpass.analysis.masks.facts import added_bias
from graphpass.targets.chain import PatternBreakError, data_uses, trace
from graphpass.targets.common import attention_findings, require_fused
from graphpass.targets.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.analysis.attention.types import Attention
    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model

__all__ = ["predict"]

_TRANSFORMATION = "src/core/src/pass/sdpa_to_paged_attention.cpp"
_POSITIONS = "src/common/transformations/src/transformations/paged_attention/position_ids_replacer.cpp"
_CONVOLUTION = "src/common/transformations/src/transformations/paged_attention/paged_causal_conv1d_fusion.cpp"
_MATCHER = "src/common/transformations/src/transformations/paged_attention/state_management_pattern.cpp"


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """What SDPAToPagedAttention will do with ``model``, an OpenVINO IR."""
    name = str(model.path)
    if not inventory.stateful:
        reason = "it holds no variables: run make-stateful"
        return (Finding("model", name, "refused", reason=reason, source=_TRANSFORMATION),)
    if not any(True for _ in model.graph.of_op("ScaledDotProductAttention")):
        reason = "it holds no ScaledDotProductAttention"
        return (Finding("model", name, "refused", reason=reason, source=_TRANSFORMATION),)
    attention = attention_findings(model, inventory, _break, _MATCHER, "refused")
    verdicts = {finding.name: finding for finding in attention}
    return (*attention, *_caches(model.graph, inventory, verdicts), *_numbers(model, attention))


def _break(graph: Graph, attention: Attention) -> None:
    require_fused(attention)
    assert attention.key is not None
    assert attention.value is not None
    for operand in (attention.key, attention.value):
        chain = trace(graph, operand)
        index = chain.gather.inputs[1]
        assert index is not None
        if graph.producer(index).name != "beam_idx":
            raise PatternBreakError(chain.gather, "its indices are not the input beam_idx")
        if chain.converts:
            raise PatternBreakError(chain.converts[0], "a Convert stands between the variable and the Gather")
        if not chain.read.inputs:
            raise PatternBreakError(chain.read, "the variable has no initial value")
        for node in data_uses(graph, chain.concat.outputs[0]):
            if node.op == "Result":
                raise PatternBreakError(chain.concat, f"the cache is an output, {node.name}, too")


def _caches(graph: Graph, inventory: Inventory, attention: dict[str, Finding]) -> Iterator[Finding]:
    readers = {
        name: attention[block.node] for block in inventory.attention for name in (block.key, block.value) if name
    }
    for cache in inventory.of_kind("kv"):
        reader = readers.get(cache.name)
        if reader is not None and reader.verdict != "plain":
            yield Finding("cache", cache.name, reader.verdict, cache.layer, reader.node, reader.reason, reader.source)
    for cache in inventory.of_kind("linear"):
        left = _unfused_convolution(graph, cache)
        if left is None:
            yield Finding("cache", cache.name, "fused", cache.layer)
        else:
            node, reason = left
            yield Finding("cache", cache.name, "refused", cache.layer, node.name, reason, _CONVOLUTION)


def _unfused_convolution(graph: Graph, cache: Cache) -> tuple[Node, str] | None:
    """What of the convolution over ``cache`` and the new columns is not as it is looked for, where there is one."""
    pending = [node.outputs[0] for node in graph.of_op("ReadValue") if node.name == cache.read]
    while pending:
        for node in data_uses(graph, pending.pop()):
            if node.op == "Concat" and any(use.op == "GroupConvolution" for use in data_uses(graph, node.outputs[0])):
                axis = node.native.get_attributes()["axis"]
                if axis != -1:
                    return node, f"it joins along axis {axis}, and only one that is counted from the end, -1, is found"
            if node.op == "Roll":
                return node, "it rolls the window, and only one that a Concat joins new columns to is found"
            if node.op in {"Gather", "Concat"}:
                pending += node.outputs
            elif node.op == "GroupConvolution":
                uses = data_uses(graph, node.outputs[0])
                if [use.op for use in uses] == ["Add"]:
                    uses = data_uses(graph, uses[0].outputs[0])
                if any(use.op != "Slice" for use in uses):
                    reason = "its result is not cut by a Slice, as with a window of a column for each of the weights"
                    return node, reason
                return None
    return None


def _numbers(model: Model, attention: tuple[Finding, ...]) -> Iterator[Finding]:
    """Where the operator computes something else: it sees no mask, and makes positions of its own."""
    graph = model.graph
    reading = {finding.name: finding for finding in attention if finding.verdict == "fused"}
    for node in graph.of_op("ScaledDotProductAttention"):
        if node.name not in reading:
            continue
        mask = node.inputs[3] if len(node.inputs) > 3 else None
        layer = reading[node.name].layer
        bias, window = added_bias(graph, mask), constant_window(graph, mask)
        if bias is not None:
            reason = "what it adds to the scores is lost with the mask: only ALiBi in another form is found"
            yield Finding("attention", node.name, "wrong", layer, bias.name, reason, _MATCHER)
        elif window is not None:
            reason = "the window that it holds is lost with the mask: only windows computed from positions are found"
            yield Finding("attention", node.name, "wrong", layer, window.name, reason, _MATCHER)
    moved = moved_positions(graph)
    if moved is not None:
        reason = "positions are a Range from 0 plus the past's length; only a Range from there on is found and replaced"
        yield Finding("input", "position_ids", "wrong", node=moved.name, reason=reason, source=_POSITIONS)
