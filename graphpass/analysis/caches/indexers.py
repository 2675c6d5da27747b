"""Find keys by which an indexer selects the positions that attention reads.

Source: DeepSeek-V3.2, DeepSeek Sparse Attention: the lightning indexer scores each position by products of its own
queries and keys, and a TopK selects positions by the scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphpass.analysis.attention.axis_trace import Labels, TracedValue, TraceStep, before, trace_axes
from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import NO_DATA, SOURCES
from graphpass.ir.values import multiplies_matrices


@dataclass(frozen=True, slots=True)
class Selection:
    """A TopK that selects positions by scores computed from a carried tensor.

    Attributes:
        node: The TopK.
        labels: Labels of the axes of the carried tensor.
        attention: The attention that reads the selected positions; ``None`` if not found.
    """

    node: Node
    labels: Labels
    attention: Node | None


Selections = dict[int, tuple[Selection, ...]]


def selections(model: Model) -> Selections:
    """Return the selections computed from each Parameter and ReadValue, by node index."""
    graph, sizes = model.graph, model.analysis(infer_sizes)
    readers = {attention.node.index for attention in model.analysis(find_attention)}
    selected: Selections = {}
    for top in graph.of_op("TopK"):
        scored = list(_scored(graph, sizes, top))
        attention = _attention(graph, top, readers) if scored else None
        for source, labels in scored:
            selected[source.index] = (*selected.get(source.index, ()), Selection(top, labels, attention))
    return selected


def _scored(graph: Graph, sizes: Sizes, top: Node) -> Iterator[tuple[Node, Labels]]:
    scores, axis = top.source(), top.attributes.get("axis")
    if scores.rank is None or scores.rank < 2 or axis is None:
        return
    labels: list[str | None] = ["batch", *[None] * (scores.rank - 1)]
    labels[axis] = "sequence"

    def steps(place: TracedValue) -> Iterable[TraceStep]:
        if "sequence" not in place.labels or graph.producer(place.value).op in SOURCES:
            return ()
        return _upstream(graph, place, sizes)

    for place in trace_axes(TracedValue(scores, tuple(labels)), steps):
        node = graph.producer(place.value)
        if node.op in SOURCES and {"sequence", "head_dim"} <= {*place.labels}:
            yield node, place.labels


def _upstream(graph: Graph, place: TracedValue, sizes: Sizes) -> list[TraceStep]:
    """Return the inputs that contain a score or a key for each position."""
    node, labels = graph.producer(place.value), place.labels
    if multiplies_matrices(node) and labels[-1] == "sequence":
        keys, is_transposed = node.source(1), node.attributes.get("transpose_b", False)
        axes: Labels = ("sequence", "head_dim") if is_transposed else ("head_dim", "sequence")
        if keys.rank is None or not 2 <= keys.rank <= len(labels):
            return []
        return [TraceStep(keys, (*labels[len(labels) - keys.rank : -2], *axes))]
    known = before(graph, place.value, labels, sizes)
    effect = sizes.axis_effect(node, len(labels)) if not known else None
    if effect is None or effect.kind not in {"elementwise", "reduce"}:
        return known
    source = node.source()
    origins = {origin: label for origin, label in zip(effect.origins, labels, strict=True) if origin is not None}
    return [TraceStep(source, tuple(origins.get(axis) for axis in range(source.rank or 0)))]


def _attention(graph: Graph, top: Node, readers: set[int]) -> Node | None:
    """Return the first attention node downstream of ``top``; ``None`` without one."""

    def outputs(use: Use) -> tuple[Value, ...]:
        return () if use.node.op in NO_DATA or use.node.index in readers else use.node.outputs

    reached = [use.node for use in graph.forward(top.outputs, outputs) if use.node.index in readers]
    return min(reached, key=lambda node: node.index, default=None)
