"""Caches whose slots are moved and trimmed by inputs before the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.analysis.symbolic.folding import fold, fold_cuts, fold_scalar
from graphpass.ir.cache import TRIM_NOTE, Cache
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.inputs import NEW_SLOTS, SOURCE_SLOTS
from graphpass.ir.operators import CASTS, SHAPE_READERS

if TYPE_CHECKING:
    from graphpass.ir.model import Model


@dataclass(frozen=True, slots=True)
class Move:
    """Slots of a cache that are moved, then trimmed to the positions before the step.

    Attributes:
        before: The cache as the model reads it.
        after: The moved and trimmed cache.
        end: A vector with the number of kept slots.
        place: Index of this number in ``end``.
    """

    before: Value
    after: Value
    end: Value
    place: int


def moves_slots(model: Model) -> bool:
    """Return whether inputs move slots of caches before a step."""
    return SOURCE_SLOTS in model.graph.parameters


def begins_at_1(model: Model) -> bool:
    """Return whether slices that trim caches start at 1 and are executed from 0.

    OpenVINO's GPU plugin executes the form that it fuses this way.
    """
    return model.read_note(TRIM_NOTE) == "begin-one"


def find_move(model: Model, cache: Cache, selectors: frozenset[str]) -> Move | None:
    """Return the move before all users of a cache; ``None`` if one precedes it.

    Args:
        model: The model.
        cache: A cache that grows.
        selectors: Inputs that select rows of the cache; this may precede the move.
    """
    graph, axis = model.graph, cache.axes.sequence
    if cache.read not in graph.reads or axis is None:
        return None
    before, uses = graph.reads[cache.read].outputs[0], list[Use]()
    pending = [before]
    while pending:
        value = pending.pop()
        for use in graph.uses(value):
            if use.node.op in SHAPE_READERS:
                continue
            if _passes(graph, use, cache, selectors):
                pending += use.node.outputs
            elif uses and use.node.inputs[use.port] is not uses[0].node.inputs[uses[0].port]:
                return None
            else:
                uses.append(use)
    nodes = list(dict.fromkeys(use.node for use in uses))
    return _moved_by_index(graph, nodes, axis) or _moved_by_writes(graph, nodes, axis, begins_at_1(model))


def selects_rows(model: Model, cache: Cache, selectors: frozenset[str]) -> bool:
    """Return whether a direct user of a cache selects its rows by an input.

    Args:
        model: The model.
        cache: One of its caches.
        selectors: Names of inputs that select rows, such as ``beam_idx``.
    """
    read = model.graph.reads.get(cache.read)
    uses = [] if read is None else model.graph.uses(read.outputs[0])
    return any(use.node.op not in CASTS and _passes(model.graph, use, cache, selectors) for use in uses)


def _passes(graph: Graph, use: Use, cache: Cache, selectors: frozenset[str]) -> bool:
    """Return whether a user keeps slots: a cast, or a Gather of rows by ``selectors``."""
    node = use.node
    if node.op in CASTS:
        return True
    is_gather = node.op == "Gather" and use.port == 0 and node.attributes.get("axis") == cache.axes.batch
    return is_gather and _input_name(graph, node.source(1)) in selectors


def _input_name(graph: Graph, value: Value) -> str:
    node = graph.producer(graph.look_through(value, CASTS))
    return node.name if node.op == "Parameter" else ""


def _moved_by_index(graph: Graph, nodes: list[Node], axis: int) -> Move | None:
    """Return the move ``Gather(past, ScatterElements(Range(0, slots), dst_idx, src_idx)[:past])``; else ``None``."""
    if len(nodes) != 1 or nodes[0].op != "Gather" or nodes[0].attributes.get("axis") != axis:
        return None
    cut = graph.producer(nodes[0].source(1))
    end = _cut_from_0(graph, cut, 0)
    order = None if end is None else graph.producer(cut.source())
    if end is None or order is None or not _writes(graph, order, 0):
        return None
    slots = graph.producer(order.source())
    if slots.op != "Range" or [fold_scalar(graph, slots.input(port)) for port in (0, 2)] != [0, 1]:
        return None
    if _input_name(graph, order.source(2)) != SOURCE_SLOTS:
        return None
    return Move(nodes[0].source(), nodes[0].outputs[0], *end)


def _moved_by_writes(graph: Graph, nodes: list[Node], axis: int, from_1: bool) -> Move | None:
    """Return the move ``ScatterElementsUpdate(past, dst_idx, Gather(past, src_idx))[:past]``; else ``None``."""
    by_op = {node.op: node for node in nodes}
    if len(nodes) != 2 or by_op.keys() != {"Gather", "ScatterElementsUpdate"}:
        return None
    moved, order = by_op["Gather"], by_op["ScatterElementsUpdate"]
    is_match = (
        moved.attributes.get("axis") == axis
        and _input_name(graph, moved.source(1)) == SOURCE_SLOTS
        and _writes(graph, order, axis)
        and order.source(2) is moved.outputs[0]
        and order.source(0) is moved.source(0)
    )
    uses = [use for use in graph.uses(order.outputs[0]) if use.node.op not in SHAPE_READERS]
    others = [use for use in graph.uses(moved.outputs[0]) if use.node is not order]
    if not is_match or len(uses) != 1 or others:
        return None
    end = (_strided if from_1 else _cut_from_0)(graph, uses[0].node, axis)
    return None if end is None else Move(moved.source(), uses[0].node.outputs[0], *end)


def _writes(graph: Graph, node: Node, axis: int) -> bool:
    """Return whether a node replaces slots at ``dst_idx``."""
    attributes = node.attributes
    is_plain = node.op == "ScatterElementsUpdate" and "reduction" not in attributes
    return is_plain and attributes.get("axis", 0) == axis and _input_name(graph, node.source(1)).startswith(NEW_SLOTS)


def _cut_from_0(graph: Graph, node: Node, axis: int) -> tuple[Value, int] | None:
    """Return the vector with the end of a slice from 0, and its index there.

    Returns:
        ``None`` unless ``node`` is a slice of ``axis`` alone.
    """
    cuts = fold_cuts(graph, node) if node.op == "Slice" else ()
    is_cut = len(cuts) == 1 and cuts[0].axis == axis and cuts[0].starts_at_first
    return (node.source(2), 0) if is_cut else None


def _strided(graph: Graph, node: Node, axis: int) -> tuple[Value, int] | None:
    """Return the cut of the StridedSlice that GPU plugins fuse (`begins_at_1`), as `_cut_from_0`."""
    if node.op != "StridedSlice":
        return None
    attributes = node.attributes
    starts, steps = (fold(graph, node.input(port)) for port in (1, 3))
    if starts is None or (starts != 1).any() or steps is None or (steps != 1).any():
        return None
    if any(any(attributes[mask]) for mask in ("new_axis_mask", "shrink_axis_mask", "ellipsis_mask")):
        return None
    ends = [bool(bit) for bit in attributes["end_mask"]]
    is_cut_here_alone = len(ends) == axis + 1 and not ends[axis] and all(ends[:axis])
    return (node.source(2), axis) if is_cut_here_alone else None
