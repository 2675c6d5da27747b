"""Faults in moves of slots, which `cache=reorder` has before each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, SLICES
from graphpass.ir.writer import Writer
from mutants.faults import Found, _changed, fault


def _readers(graph: Graph, name: str) -> list[tuple[Node, int]]:
    """Return the operators that compute with an input."""
    pending = [value for one, value in graph.parameters.items() if one.startswith(name)]
    found: list[tuple[Node, int]] = []
    while pending:
        for use in graph.uses(pending.pop()):
            if use.node.op in CASTS:
                pending += use.node.outputs
            elif use.node.op in {"Gather", "ScatterElementsUpdate"}:
                found.append((use.node, use.port))
    return found


def _limited(name: str) -> Callable[[Model], Found]:
    def find(model: Model) -> Found:
        for reader in _readers(model.graph, name):
            kind = reader[0].source(reader[1]).element_type

            def change(write: Writer, one: Value, kind: str = kind) -> Any:
                return write.op("Minimum", one, write.number(3, kind))

            yield reader[0].name, _changed(reader, change)

    return find


fault("sources of moved slots limited to 3")(_limited("src_idx"))
fault("places of moved slots limited to 3")(_limited("dst_idx"))


@fault("slots of a cache not moved")
def _(model: Model) -> Found:
    graph = model.graph
    for node in dict.fromkeys(node for node, _ in _readers(graph, "dst_idx")):
        for use in graph.uses(node.outputs[0]):
            if use.node.op in SLICES:
                before = node.source(0)
                yield node.name, _changed((use.node, use.port), lambda write, one, before=before: before)


@fault("a cache read before its slots are moved")
def _(model: Model) -> Found:
    graph = model.graph
    for node in dict.fromkeys(node for node, _ in _readers(graph, "dst_idx")):
        if graph.producer(node.source(0)).op not in {"ReadValue", "Parameter"}:
            continue
        cuts = [use.node for use in graph.uses(node.outputs[0]) if use.node.op in SLICES]
        for cut in cuts:
            for use in graph.uses(cut.outputs[0]):
                if use.node.op == "Concat":
                    before = node.source(0)
                    yield use.node.name, _changed((use.node, use.port), lambda write, one, before=before: before)
