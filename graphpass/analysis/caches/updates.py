"""Find how a step makes the next cache from the old one: appends, writes and cuts, with their axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from graphpass.analysis.attention.axis_trace import PART, Labels, PathStep, Place, Step, before, trace
from graphpass.analysis.caches.pairs import Pair
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import LOOP_ENTRIES, LOOP_EXITS, inner_state

__all__ = ["Update", "find_updates"]

#: A cache is updated within its layer: nothing is searched for beyond this many operators.
_LIMIT = 400


Path: TypeAlias = "tuple[PathStep, ...]"


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
    for path in _ways(graph, pair.present, pair.past):
        for place, step in enumerate(path):
            axes = tuple(label for label in step.labels if isinstance(label, int))
            if step.kind in {"join", "write"} and axes:
                after, prior = _cut(path[:place], axes), _cut(path[place + 1 :], axes)
                update = Update(step.node, axes, step.kind == "join", prior, after, _entered(path[place + 1 :]))
                found.setdefault((step.node.index, axes), update)
    return tuple(found.values())


def _cut(path: Path, axes: Labels) -> Node | None:
    """Return the nearest Slice or Split along one of ``axes``."""
    return next((step.node for step in path if step.kind in {"slice", "part"} and set(step.labels) & set(axes)), None)


def _entered(path: Path) -> Node | None:
    """Return the entry into the innermost loop that ``path``, back to the past, enters but does not leave."""
    left = 0
    for step in path:
        if step.node.op in LOOP_EXITS:
            left += 1
        elif step.node.op in LOOP_ENTRIES:
            if not left:
                return step.node
            left -= 1
    return None


def _ways(graph: Graph, present: Value, past: Value) -> list[Path]:
    """Return each way from the present back to the past on which every axis keeps its meaning."""
    start = Place(present, tuple(range(present.rank or 0)))
    ends = [start] if present == past else []

    def steps(place: Place) -> Iterator[Step]:
        if place in ends or inner_state(graph.producer(place.value), present=place.value) is not None:
            return
        for step in before(graph, place.value, place.labels):
            kind = None if step.passed is None else step.passed.kind
            if step.value == past:
                ends.append(Place(past, step.labels, (*place.path, *([] if step.passed is None else [step.passed]))))
            elif kind not in {"weights", "scale", "zero_point"}:
                yield step

    for _ in islice(trace(start, steps), _LIMIT):
        pass
    return [end.path for end in ends if all(label in {axis, PART, None} for axis, label in enumerate(end.labels))]
