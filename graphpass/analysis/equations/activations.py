"""Find values that depend on tokens, and the values computed from positions that they read."""

from __future__ import annotations

from graphpass.analysis.attention.find import find_score_masks
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import POSITIONS
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import TOKEN_INPUTS
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.operators import GATHERS, LAYOUT, SHAPE_READERS
from graphpass.ir.values import REALS


def find_activations(model: Model) -> frozenset[int]:
    """Return the indices of nodes whose elements depend on tokens or caches."""
    graph = model.graph
    reads = {cache.read for cache in analyze_caches(model).caches}
    activations: set[int] = set()
    for node in graph.nodes:
        starts = node.op in {"Parameter", "ReadValue"} and (node.name in TOKEN_INPUTS or node.name in reads)
        follows = node.op not in SHAPE_READERS and any(value.node in activations for value in node.sources)
        if starts or follows:
            activations.add(node.index)
    return frozenset(activations)


def computed_by_positions(model: Model) -> tuple[Value, ...]:
    """Return the values computed from ``position_ids`` that activations read, in order, for `Model.analysis`.

    Rows gathered from constant tables, and masks, are excluded.
    """
    graph, activations = model.graph, model.analysis(find_activations)
    masks = mask_values(model)
    positions = graph.parameters.get(POSITIONS)
    computed = set() if positions is None else {positions}
    read: dict[Value, None] = {}
    for node in graph.nodes:
        operands = [value for value in node.inputs if value in computed]
        if not operands or node.op in SHAPE_READERS or _looks_up(graph, node):
            continue
        if node.index in activations:
            read.update((value, None) for value in operands if value.element_type in REALS and value not in masks)
        else:
            computed.update(node.outputs)
    return tuple(read)


def mask_values(model: Model) -> dict[Value, None]:
    """Return the tensors that mask scores or are added to them, in order."""
    score_masks = model.analysis(find_score_masks)
    return dict.fromkeys(mask.value for masks in score_masks if not isinstance(masks, Miss) for mask in masks)


def _looks_up(graph: Graph, node: Node) -> bool:
    return node.op in GATHERS and graph.producer(graph.look_through(node.source(), LAYOUT)).op == "Constant"
