"""Find the numbers that a graph computes of positions: cosines, sines, factors of queries."""

from __future__ import annotations

from graphpass.analysis.caches.step_lengths import POSITIONS
from graphpass.analysis.equations.mask_operands import find_mask_operands
from graphpass.analysis.equations.rotation import find_activations
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import GATHERS, LAYOUT, SHAPE_READERS
from graphpass.ir.values import REALS


def computed_by_positions(model: Model) -> tuple[Value, ...]:
    """Return the values computed of ``position_ids`` that activations read, in order, for `Model.analysis`.

    Rows of constant tables and masks are none of them.
    """
    graph, activations = model.graph, model.analysis(find_activations)
    masks = {mask.value for operands in model.analysis(find_mask_operands) for mask in operands.masks}
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


def _looks_up(graph: Graph, node: Node) -> bool:
    return node.op in GATHERS and graph.producer(graph.look_through(node.source(), LAYOUT)).op == "Constant"
