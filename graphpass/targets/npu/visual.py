"""Visual features that NPUW adds to hidden states.

Source: the matcher in ``npuw_transformations/replace_deepstack_scatter_with_add.cpp`` of OpenVINO.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.pattern import Match, op, var
from graphpass.ir.graph import Graph, Use, Value
from graphpass.ir.inputs import VISUAL_FEATURES
from graphpass.ir.operators import MOVES, SHAPE_READERS

_LEVEL = op.Gather(var("features"), ..., name="level")
_SCATTERED = op.ScatterNDUpdate(
    var("hidden"),
    var("places"),
    op.Add(op.GatherND(var("hidden"), var("places"), name="rows"), _LEVEL, name="sum"),
    name="scatter",
)


def adds_scattered(graph: Graph) -> bool:
    """Return whether all layers scatter features into hidden states in the form that NPUW replaces."""
    matched = {match.nodes["sum"].index for match in _scattered(graph)}
    uses = graph.forward([graph.parameters[VISUAL_FEATURES]], _of_level)
    return all(use.node.op in SHAPE_READERS | {"Gather"} or use.node.index in matched for use in uses)


def visual_places(graph: Graph) -> frozenset[int]:
    """Return the operators that compute only places of features, which NPUW drops."""
    readers = {match.nodes[name].index for match in _scattered(graph) for name in ("rows", "scatter")}
    dropped = set(readers)
    if readers:
        for node in reversed(graph.nodes):
            users = {use.node.index for value in node.outputs for use in graph.uses(value)}
            if users and users <= dropped and node.op in MOVES | {"NonZero"}:
                dropped.add(node.index)
    return frozenset(dropped - readers)


def _scattered(graph: Graph) -> Iterator[Match]:
    features = graph.parameters.get(VISUAL_FEATURES)
    for node in graph.of_op("ScatterNDUpdate") if features is not None else ():
        match = _SCATTERED.match(graph, node)
        if isinstance(match, Match) and match["features"] == features:
            yield match


def _of_level(use: Use) -> tuple[Value, ...]:
    return use.node.outputs if use.node.op == "Gather" else ()
