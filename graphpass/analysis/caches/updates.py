"""Find how a step makes the next cache from the old one: appends, writes and cuts, with their axes."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.attention.axis_trace import PART, Labels, Via, before
from graphpass.analysis.caches.pairs import Pair
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import LOOP_ENTRIES, LOOP_EXITS, inner_state

__all__ = ["Update", "find_updates"]

#: A cache is updated within its layer: nothing is searched for beyond this many operators.
_LIMIT = 400


@dataclass(frozen=True, slots=True)
class Update:
    """One operator that makes the new cache from the old one.

    Attributes:
        node: The Concat or scatter operator.
        axes: Axes of the cache along which it appends or writes; several if it could be any of them.
        appends: Whether it is a Concat; else it writes in place.
        cut_before: The Slice or Split that drops old positions before it.
        cut_after: The Slice or Split that drops positions of the result before it is written back.
        loop: The entry of the cache into the loop in whose body the operator is.
    """

    node: Node
    axes: tuple[int, ...]
    appends: bool
    cut_before: Node | None = None
    cut_after: Node | None = None
    loop: Node | None = None


def find_updates(graph: Graph, pair: Pair) -> tuple[Update, ...]:
    """Return the operators that append to the past of ``pair`` or write into it on the way to its present."""
    if pair.present is None or pair.present.rank is None:
        return ()
    found: dict[tuple[int, tuple[int, ...]], Update] = {}
    for vias in _ways(graph, pair.present, pair.past):
        for place, via in enumerate(vias):
            axes = tuple(label for label in via.labels if isinstance(label, int))
            if via.kind in {"join", "write"} and axes:
                after, prior = _cut(vias[:place], axes), _cut(vias[place + 1 :], axes)
                update = Update(via.node, axes, via.kind == "join", prior, after, _entered(vias[place + 1 :]))
                found.setdefault((via.node.index, axes), update)
    return tuple(found.values())


def _cut(vias: tuple[Via, ...], axes: Labels) -> Node | None:
    """Return the nearest Slice or Split along one of ``axes``."""
    return next((via.node for via in vias if via.kind in {"slice", "part"} and set(via.labels) & set(axes)), None)


def _entered(vias: tuple[Via, ...]) -> Node | None:
    """Return the entry into the innermost loop that ``vias``, the way back to the past, enters but does not leave."""
    left = 0
    for via in vias:
        if via.node.op in LOOP_EXITS:
            left += 1
        elif via.node.op in LOOP_ENTRIES:
            if not left:
                return via.node
            left -= 1
    return None


def _ways(graph: Graph, present: Value, past: Value) -> list[tuple[Via, ...]]:
    """Return each way from the present back to the past on which every axis keeps its meaning."""
    pending: list[tuple[Value, Labels, tuple[Via, ...]]] = [(present, tuple(range(present.rank or 0)), ())]
    seen: set[tuple[int, int, Labels]] = set()
    ways = []
    while pending and len(seen) < _LIMIT:
        value, labels, vias = pending.pop(0)
        if value == past:
            if all(label in {axis, PART, None} for axis, label in enumerate(labels)):
                ways.append(vias)
            continue
        if (value.node, value.port, labels) in seen:
            continue
        seen.add((value.node, value.port, labels))
        if inner_state(graph.producer(value), present=value) is not None:
            continue
        pending.extend(
            (step.value, step.labels, vias if step.via is None else (*vias, step.via))
            for step in before(graph, value, labels)
            if step.via is None or step.via.kind not in {"weights", "scale", "zero_point"}
        )
    return ways
