"""The contract of paged attention, openvino.genai's default backend: SDPAToPagedAttention takes every cache.

Rules, of openvino: ``sdpa_to_paged_attention.cpp`` and the matchers beside it; measured on 2026.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.checks.chain import BreaksPattern, data_uses, trace
from graphpass.checks.common import attention_findings
from graphpass.checks.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.analysis.attention import Attention
    from graphpass.caches import Inventory
    from graphpass.graph import Graph
    from graphpass.model import Model

__all__ = ["predict"]

_PASS = "src/core/src/pass/sdpa_to_paged_attention.cpp"
_MATCHER = "src/common/transformations/src/transformations/common_optimizations/state_management_pattern.cpp"


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """What SDPAToPagedAttention will do with ``model``, an OpenVINO IR."""
    name = str(model.path)
    if not inventory.stateful:
        reason = "it holds no variables: run make-stateful"
        return (Finding("model", name, "refused", reason=reason, source=_PASS),)
    if not any(True for _ in model.graph.of_op("ScaledDotProductAttention")):
        reason = "it holds no ScaledDotProductAttention"
        return (Finding("model", name, "refused", reason=reason, source=_PASS),)
    attention = attention_findings(model, inventory, _break, _MATCHER, "refused")
    verdicts = {finding.name: finding for finding in attention}
    return tuple(attention) + tuple(_caches(inventory, verdicts))


def _break(graph: Graph, attention: Attention) -> None:
    if attention.node.op != "ScaledDotProductAttention":
        raise BreaksPattern(attention.node, f"it is computed by {attention.node.op}: run fuse-attention")
    assert attention.key is not None
    assert attention.value is not None
    for operand in (attention.key, attention.value):
        chain = trace(graph, operand)
        index = chain.gather.inputs[1]
        assert index is not None
        if graph.producer(index).name != "beam_idx":
            raise BreaksPattern(chain.gather, "its indices are not the input beam_idx")
        if chain.converts:
            raise BreaksPattern(chain.converts[0], "a Convert stands between the variable and the Gather")
        if not chain.read.inputs:
            raise BreaksPattern(chain.read, "the variable has no initial value")
        for node in data_uses(graph, chain.concat.outputs[0]):
            if node.op == "Result":
                raise BreaksPattern(chain.concat, f"the cache is an output, {node.name}, too")


def _caches(inventory: Inventory, attention: dict[str, Finding]) -> Iterator[Finding]:
    readers = {name: attention[block.node] for block in inventory.attention for name in (block.key, block.value) if name}
    for cache in inventory.of_kind("kv"):
        reader = readers.get(cache.name)
        if reader is not None and reader.verdict != "plain":
            yield Finding("cache", cache.name, reader.verdict, cache.layer, reader.node, reader.reason, reader.source)
    for cache in inventory.of_kind("linear"):
        yield Finding("cache", cache.name, "fused", cache.layer)
