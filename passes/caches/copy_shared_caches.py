"""The pass `copy-shared-caches`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.variables import add_names, split_id
from graphpass.engine.conditions import HAS_CACHES
from graphpass.engine.passes import Done, Pass
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Node
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.writer import Handle

#: Operators that expand grouped heads, move axes or convert types.
_LAYOUT = frozenset({"Broadcast", "Convert", "Reshape", "Transpose", "Unsqueeze"})


@dataclass(frozen=True)
class CopySharedCaches(Pass[OpenVINOModel]):
    """Add a copy of a shared cache for each further attention that reads it.

    The last layers of Gemma 3n and Gemma 4 read keys and values of earlier layers. The CPU plugin (2026.4.1) fuses a
    cache only with a single attention, and decomposes all attention that reads a shared cache. A copy has the same
    contents as its cache, and takes as much memory as a cache that is not shared.

    Shapes:
        a copy has the shape and type of its cache

    Before:
        past -> Concat(., new) -> attention 0, attention 1, present
    After:
        past -> Concat(., new) -> attention 0, present; past.copy1 -> Concat(., new) -> attention 1, present.copy1
    """

    name = "copy-shared-caches"
    dialect = "openvino"
    requires = (HAS_CACHES,)

    def run(self, model: OpenVINOModel) -> Done:
        graph, rewriter, count = model.graph, model.rewriter(), 0
        attention = list(graph.of_op("ScaledDotProductAttention"))
        for cache in analyze_caches(model).of_kind("kv"):
            concat = graph.producer(graph.writes[str(cache.write)].source())
            if concat.op != "Concat":
                continue
            readers = [
                (node, chains)
                for node in attention
                if (
                    chains := {
                        port: copied for port in (1, 2) if (copied := _chain(graph, node, port, concat)) is not None
                    }
                )
            ]
            for number, (node, chains) in enumerate(readers[1:], 1):
                appended = _copy(model, rewriter, cache, concat, number)
                for port, chain in chains.items():
                    rewriter.redirect(node, port, _cloned(rewriter, chain, appended, number))
                count += 1
        rewriter.finish()
        return Done({"caches copied": count} if count else {})


def _chain(graph: Graph, attention: Node, port: int, concat: Node) -> list[Node] | None:
    """Return the layout operators from ``concat`` to an operand; ``None`` if there are others."""
    value = attention.inputs[port]
    if value is None or graph.producer(graph.look_through(value, _LAYOUT)) != concat:
        return None
    return [*reversed(graph.between(value, concat))]


def _copy(model: OpenVINOModel, rewriter: Rewriter, cache: Cache, concat: Node, number: int) -> Handle:
    """Add a cache with the same new positions.

    Returns:
        The result of its Concat.
    """
    graph, end = model.graph, f".copy{number}"
    read, write = graph.reads[cache.read], graph.writes[str(cache.write)]
    sizes = [None] * (read.outputs[0].rank or 0)
    names = (f"{cache.read}{end}", f"{cache.write}{end}")
    if read.op == "ReadValue":
        past, present = (f"{name}{end}" for name in split_id(model, cache.name))
        names = (past + present, past + present)
        add_names(model, {names[0]: (past, present)}, cache.name)
    initial = rewriter.native(read.source()) if read.op == "ReadValue" and read.inputs else None
    made = rewriter.add_past(read, names[0], sizes, initial)
    # The beam Gather, and Converts.
    between = graph.between(concat.source(), read)
    made = _cloned(rewriter, [*reversed(between), concat], made, number)
    rewriter.add_present(write, names[1], sizes, made)
    return made


def _cloned(rewriter: Rewriter, chain: list[Node], source: Handle, number: int) -> Handle:
    for node in chain:
        source = rewriter.clone(node, {0: source}, f"{node.name}/copy{number}")
    return source
