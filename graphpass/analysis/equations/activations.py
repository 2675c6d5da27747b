"""Find values that depend on tokens, and the values computed from positions that they read."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.attention.find import find_score_masks
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_lengths import MASK, POSITIONS
from graphpass.analysis.symbolic.expressions import contains
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.cache import Inventory
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.inputs import TOKEN_INPUTS, token_input
from graphpass.ir.miss import Miss
from graphpass.ir.model import Model
from graphpass.ir.operators import COMPARISONS, GATHERS, LAYOUT, SHAPE_READERS, SIZE_PORTS, SLICES
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


def position_counters(model: Model, inventory: Inventory) -> Iterator[Node]:
    """Yield operators that count positions for activations, from the past or from 0.

    Args:
        model: The model.
        inventory: Its caches, whose sizes are lengths of the past.
    """
    graph, sizes = model.graph, model.analysis(infer_sizes)
    activations, masks = model.analysis(find_activations), mask_values(model)
    new, total = (sizes.shape(value) for value in (token_input(graph), graph.parameters.get(MASK)))
    pasts = {total[1]} if total is not None and len(total) == 2 else set()
    for cache in inventory.of_kind("kv"):
        shape = sizes.shape(graph.reads[cache.read].outputs[0])
        if shape is not None and cache.axes.sequence is not None:
            pasts.add(shape[cache.axes.sequence])

    def outputs(use: Use) -> tuple[Value, ...]:
        inside = _computes_numbers(graph, use) and use.node.index not in activations
        return tuple(value for value in use.node.outputs if inside and value not in masks)

    for node in graph.nodes:
        uses = [Use(node, port) for port, value in enumerate(node.inputs) if value is not None]
        counts = [use for use in uses if contains(sizes.content(node.source(use.port)) or (), *pasts)]
        counts = [use for use in counts if _computes_numbers(graph, use)]
        if node.op == "Range" and new is not None and sizes.content(node.input(1)) == new[1:2]:
            counts = uses[:1]
        if counts and sizes.content(node.outputs[0]) is None:
            read = [*counts[:1], *graph.forward(outputs(counts[0]), outputs)]
            if any(_computes_numbers(graph, use) and use.node.index in activations for use in read):
                yield node


def _computes_numbers(graph: Graph, use: Use) -> bool:
    """Return whether elements of the result depend on those at ``use``, other than by comparisons."""
    node = use.node
    if node.op in SLICES and use.port == 1:
        return graph.producer(node.source()).op == "Constant"
    if node.op == "Range":
        return use.port != 1
    ignores = SHAPE_READERS | COMPARISONS.keys() | {"Equal", "NotEqual"}
    return node.op not in ignores and use.port not in SIZE_PORTS.get(node.op, ())


def mask_values(model: Model) -> dict[Value, None]:
    """Return the tensors that mask scores or are added to them, in order."""
    score_masks = model.analysis(find_score_masks)
    return dict.fromkeys(mask.value for masks in score_masks if not isinstance(masks, Miss) for mask in masks)


def _looks_up(graph: Graph, node: Node) -> bool:
    return node.op in GATHERS and graph.producer(graph.look_through(node.source(), LAYOUT)).op == "Constant"
