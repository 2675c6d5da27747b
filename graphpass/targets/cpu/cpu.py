"""The CPU plugin's contract: every attention over a growing cache becomes one stateful operator.

Rules, of openvino: ``stateful_sdpa_fusion.cpp``; what keeps and what breaks the fusion was measured on 2026.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.targets.chain import Chain, PatternBreakError, data_uses, trace
from graphpass.targets.common import attention_findings, failing_branches, require_fused
from graphpass.targets.finding import Finding

if TYPE_CHECKING:
    from graphpass.analysis.attention.types import Attention
    from graphpass.ir.cache import Inventory
    from graphpass.ir.graph import Graph, Node, Value
    from graphpass.ir.model import Model

__all__ = ["predict"]

_FUSION = "src/plugins/intel_cpu/src/transformations/cpu_opset/common/pass/stateful_sdpa_fusion.cpp"
_NODE = "src/plugins/intel_cpu/src/node.cpp"
_GRAPH = "src/plugins/intel_cpu/src/graph.cpp"


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """What OpenVINO's CPU plugin will do with ``model``, an OpenVINO IR."""
    graph = model.graph
    attention = attention_findings(model, inventory, _break, _FUSION)
    fused = {finding.name for finding in attention if finding.verdict == "fused"}
    return (
        *failing_branches(model, _NODE),
        *_cut_for_gpus(model),
        *attention,
        *_linear(graph, inventory),
        *_without_initializer(model, inventory, fused),
    )


def _cut_for_gpus(model: Model) -> tuple[Finding, ...]:
    from graphpass.dialects.openvino.model import TRIM_NOTE

    if model.read_note(TRIM_NOTE) is None:
        return ()
    reason = "its caches are cut from 1 on, as OpenVINO 2026.4.1's GPU plugin wants it: here that drops a position"
    return (Finding("model", str(model.path), "wrong", reason=reason),)


def _break(graph: Graph, attention: Attention) -> None:
    require_fused(attention)
    assert attention.query is not None
    assert attention.key is not None
    assert attention.value is not None
    key, value = trace(graph, attention.key), trace(graph, attention.value)
    for chain in (key, value):
        _check_chain(graph, chain)
    # The plugin compares the axes as they are written: -2 and 2 are not the same to it.
    axes = [chain.concat.native.get_attributes()["axis"] for chain in (key, value)]
    if axes[0] != axes[1]:
        raise PatternBreakError(
            value.concat, f"keys and values are appended along different axes: {axes[0]} and {axes[1]}, as written"
        )
    if key.gather.inputs[1] != value.gather.inputs[1]:
        raise PatternBreakError(value.gather, "keys and values are reordered by different indices")
    _check_orders(graph, attention.query, key, value)


def _check_chain(graph: Graph, chain: Chain) -> None:
    index = chain.gather.inputs[1]
    assert index is not None
    if index.element_type != "i32":
        raise PatternBreakError(chain.gather, f"its indices are {index.element_type}, not i32")
    if index.rank not in {1, None}:
        raise PatternBreakError(chain.gather, f"its indices are of rank {index.rank}, not 1")
    for node in (chain.gather, *chain.converts):
        _one_reader(graph, node)
    readers = data_uses(graph, chain.concat.outputs[0])
    writes = [node for node in readers if _assigned(graph, node) == chain.read.attributes["variable"]]
    if not writes:
        raise PatternBreakError(chain.concat, "what it makes is not written back to the variable that it was read from")
    if len(readers) != 2:
        others = ", ".join(f"{node.op} {node.name}" for node in readers if node not in writes)
        raise PatternBreakError(chain.concat, f"not only attention reads the cache: {others}")
    for node in chain.layout:
        _one_reader(graph, node)
        _check_shape_reads(graph, node, chain)


def _assigned(graph: Graph, node: Node) -> str | None:
    if node.op == "Convert":
        node = next(iter(data_uses(graph, node.outputs[0])), node)
    return node.attributes["variable"] if node.op == "Assign" else None


def _one_reader(graph: Graph, node: Node) -> None:
    readers = data_uses(graph, node.outputs[0])
    if len(readers) > 1:
        raise PatternBreakError(node, f"{len(readers)} operators read it, where one may")


def _check_shape_reads(graph: Graph, node: Node, chain: Chain) -> None:
    """The size of what lies between cache and attention may not say how large copies of heads are, nor be an output.

    The plugin drops a ShapeOf where it can derive the same from the symbols of dimensions, as in the target of a
    Reshape, or the Slice of a mask that cuts nothing; any that stays is one more reader, where it looks for one.
    """
    copies = {inner.index for inner in chain.layout if inner.op == "Broadcast"}
    pending = [use.node for use in graph.uses(node.outputs[0]) if use.node.op == "ShapeOf"]
    seen = {reader.index for reader in pending}
    while pending:
        sizes = pending.pop()
        for value in sizes.outputs:
            for use in graph.uses(value):
                if use.node.op == "Result" or (use.node.index in copies and use.port == 1):
                    what = "an output" if use.node.op == "Result" else f"that of {use.node.op} {use.node.name}"
                    raise PatternBreakError(node, f"its size is computed, and becomes {what}")
                if use.node.index not in seen and all(_is_size(output) for output in use.node.outputs):
                    seen.add(use.node.index)
                    pending.append(use.node)


def _is_size(value: Value) -> bool:
    return value.element_type in {"i32", "i64"} and value.rank in {0, 1}


def _check_orders(graph: Graph, query: Value, key: Chain, value: Chain) -> None:
    """A transposed cache is taken only where query, key and value are transposed alike."""
    orders = [_order(chain.layout[0]) if chain.layout else None for chain in (key, value)]
    if orders == [None, None]:
        return
    orders.append(_order(graph.producer(query)))
    if len(set(orders)) > 1:
        raise PatternBreakError(
            key.layout[0] if key.layout else value.layout[0], "query, key and value are laid out apart"
        )


def _order(node: Node) -> tuple[int, ...] | None:
    return node.attributes.get("order") if node.op == "Transpose" else None


def _linear(graph: Graph, inventory: Inventory) -> list[Finding]:
    """States that each step replaces: nothing is fused, but one form does not compile."""
    reads = {node.attributes["variable"]: node for node in graph.of_op("ReadValue")}
    found = []
    for cache in inventory.of_kind("linear"):
        node = reads.get(cache.name)
        if node is None:
            reason = "the state is an input of the model, not a variable: run make-stateful"
            found.append(Finding("cache", cache.name, "not fused", cache.layer, cache.read, reason, _FUSION))
            continue
        found.append(Finding("cache", cache.name, "taken", cache.layer))
    return found


def _without_initializer(model: Model, inventory: Inventory, fused: set[str]) -> list[Finding]:
    blocks = {name: block.node for block in inventory.attention for name in (block.key, block.value) if name}
    found = []
    for node in model.graph.of_op("ReadValue"):
        variable = node.attributes["variable"]
        if not node.inputs and blocks.get(variable) in fused:
            layer = inventory.cache(variable).layer
            reason = "the variable has no initial value"
            found.append(Finding("cache", variable, "refused", layer, node.name, reason, _GRAPH))
    return found
