"""Rules of the CPU plugin, which fuses attention over a growing cache into one operator.

Source: ``stateful_sdpa_fusion.cpp`` of OpenVINO. Which forms are fused was measured on 2026.4.1.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.attention.types import Attention
from graphpass.engine.findings import Finding
from graphpass.ir.cache import Inventory
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.targets.chain import OperandChain, data_uses, trace_operand
from graphpass.targets.rules import (
    attention_findings,
    dropped_quantizers,
    failing_branches,
    linear_finding,
    require_fused,
)

_FUSION = "src/plugins/intel_cpu/src/transformations/cpu_opset/common/pass/stateful_sdpa_fusion.cpp"
_NODE = "src/plugins/intel_cpu/src/node.cpp"
_GRAPH = "src/plugins/intel_cpu/src/graph.cpp"


def predict(model: Model, inventory: Inventory) -> tuple[Finding, ...]:
    """Predict how the CPU plugin executes a model.

    Args:
        model: A model in OpenVINO IR.
        inventory: The caches of the model.

    Returns:
        Findings on the model as a whole, on attention blocks, on ``linear`` caches, and on other variables.
    """
    attention = attention_findings(model, inventory, _require_fusion, _FUSION)
    variables = {node.attributes["variable"] for node in model.graph.of_op("ReadValue")}
    linear = inventory.of_kind("linear")
    fused = {finding.name for finding in attention if finding.verdict == "fused"}
    return (
        *failing_branches(model, _NODE),
        *dropped_quantizers(model),
        *_cut_for_gpus(model),
        *attention,
        *(linear_finding(cache, _FUSION, is_variable=cache.name in variables) for cache in linear),
        *_without_initializer(model, inventory, fused),
    )


def _cut_for_gpus(model: Model) -> Iterator[Finding]:
    from graphpass.ir.cache import TRIM_NOTE

    if model.read_note(TRIM_NOTE) is not None:
        reason = (
            "its caches are trimmed by trim=begin-one, for OpenVINO 2026.4.1's GPU plugin; the CPU loses a position"
        )
        yield Finding.of_model(model, "wrong", reason)


def _require_fusion(graph: Graph, attention: Attention) -> None:
    require_fused(attention)
    assert attention.query is not None
    assert attention.key is not None
    assert attention.value is not None
    key, value = trace_operand(graph, attention.key), trace_operand(graph, attention.value)
    for chain in (key, value):
        _require_readers(graph, chain)
    # The plugin compares the attributes: -2 and 2 differ even if they denote the same axis.
    axes = [chain.concat.native.get_attributes()["axis"] for chain in (key, value)]
    if axes[0] != axes[1]:
        raise MissError(
            value.concat, f"expected Concats of keys and values with equal axis attributes, got {axes[0]} and {axes[1]}"
        )
    if key.index != value.index:
        raise MissError(value.gather, "keys and values are reordered by different indices")
    _require_one_order(graph, attention.query, key, value)


def _require_readers(graph: Graph, chain: OperandChain) -> None:
    if chain.index.element_type != "i32":
        raise MissError(chain.gather, f"its indices are {chain.index.element_type}, not i32")
    if chain.index.rank not in {1, None}:
        raise MissError(chain.gather, f"its indices are of rank {chain.index.rank}, not 1")
    for node in (chain.gather, *chain.converts):
        _require_one_reader(graph, node)
    readers = data_uses(graph, chain.concat.outputs[0])
    writes = [node for node in readers if _assigned(graph, node) == chain.read.attributes["variable"]]
    if not writes:
        raise MissError(chain.concat, "its result is not assigned to the variable that it appends to")
    if len(readers) != 2:
        others = ", ".join(f"{node.op} {node.name}" for node in readers if node not in writes)
        raise MissError(chain.concat, f"not only attention reads the cache: {others}")
    for node in chain.layout:
        _require_one_reader(graph, node)
        _require_free_shape(graph, node, chain)


def _assigned(graph: Graph, node: Node) -> str | None:
    if node.op == "Convert":
        node = next(iter(data_uses(graph, node.outputs[0])), node)
    return node.attributes["variable"] if node.op == "Assign" else None


def _require_one_reader(graph: Graph, node: Node) -> None:
    readers = data_uses(graph, node.outputs[0])
    if len(readers) > 1:
        raise MissError(node, f"expected one user, got {len(readers)}")


def _require_free_shape(graph: Graph, node: Node, chain: OperandChain) -> None:
    """Refuse a ``node`` whose size a Broadcast of kv heads or an output reads.

    The fusion requires one user. The plugin removes a ShapeOf whose result it can derive from symbolic dimensions, as
    for the target of a Reshape, or the Slice of a mask that has no effect. A remaining ShapeOf is a second user.

    Raises:
        MissError: A Broadcast of kv heads or an output reads its size.
    """
    copies = {inner.index for inner in chain.layout if inner.op == "Broadcast"}
    shapes = [use.node.outputs[0] for use in graph.uses(node.outputs[0]) if use.node.op == "ShapeOf"]
    for use in graph.forward(shapes, lambda use: use.node.outputs if all(map(_is_size, use.node.outputs)) else ()):
        if use.node.op == "Result" or (use.node.index in copies and use.port == 1):
            user = "an output" if use.node.op == "Result" else f"{use.node.op} {use.node.name}"
            raise MissError(node, f"a ShapeOf reads it, and its size is used by {user}")


def _is_size(value: Value) -> bool:
    return value.element_type in {"i32", "i64"} and value.rank in {0, 1}


def _require_one_order(graph: Graph, query: Value, key: OperandChain, value: OperandChain) -> None:
    orders = [_order(chain.layout[0]) if chain.layout else None for chain in (key, value)]
    if orders == [None, None]:
        return
    orders.append(_order(graph.producer(query)))
    if len(set(orders)) > 1:
        raise MissError(
            key.layout[0] if key.layout else value.layout[0], "query, key and value are transposed in different orders"
        )


def _order(node: Node) -> tuple[int, ...] | None:
    return node.attributes.get("order") if node.op == "Transpose" else None


def _without_initializer(model: Model, inventory: Inventory, fused: set[str]) -> Iterator[Finding]:
    blocks = {name: block.node for block in inventory.attention for name in (block.key, block.value) if name}
    for node in model.graph.of_op("ReadValue"):
        variable = node.attributes["variable"]
        if not node.inputs and blocks.get(variable) in fused:
            layer = inventory.cache(variable).layer
            reason = "the variable has no initial value"
            yield Finding("cache", variable, "refused", layer, node.name, reason, _GRAPH)
