"""The pass `canonicalize-shapes`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.pattern import Match, op, var
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Value

_SIZES = op.ShapeOf(var("x"))

#: Copies axes of size 1 to the sizes of a target, and keeps others.
EXPANSION = op.Broadcast(var("x"), op.Select(op.Equal(_SIZES, 1), var("target"), _SIZES), ...)

#: Counts integers as real numbers.
COUNT = op.Convert(op.Range(var("start"), var("stop"), var("step")))

_INTEGERS = frozenset({"i32", "i64"})


@dataclass(frozen=True)
class CanonicalizeShapes(Pass[OpenVINOModel]):
    """Write expanded axes and counted positions as other exporters do.

    OpenVINO's frontend for torch.export computes the sizes of ``expand`` from those of its input, so that no plugin
    (2026.4.1) fuses attention with its cache, and counts positions in f32.

    Before:
        Broadcast(x, Select(ShapeOf(x) == 1, target, ShapeOf(x))); Convert(Range in f32)
    After:
        Broadcast(x, target) in both directions; Range in i64
    """

    name = "canonicalize-shapes"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        """See `Pass.run`."""
        graph, rewriter = model.graph, model.rewriter()
        expansions, counts = list(expanded(graph)), list(counted(graph))
        for match in expansions:
            write = rewriter.under(match.node.name)
            rewriter.replace(
                match.node.outputs[0], write.op("Broadcast", match["x"], match["target"], mode="bidirectional")
            )
        for match in counts:
            write = rewriter.under(match.node.name)
            bounds = [write.convert(rewriter.handle(match[part]), "i64") for part in ("start", "stop", "step")]
            made = write.op("Range", *bounds, output_type="i64")
            rewriter.replace(match.node.outputs[0], write.convert(made, match.node.outputs[0].element_type))
        rewriter.finish()
        totals = {"expansions": len(expansions), "ranges counted in integers": len(counts)}
        return Done({words: count for words, count in totals.items() if count})


def expanded(graph: Graph) -> Iterator[Match]:
    """Yield Broadcasts whose target is chosen by the sizes of their input."""
    return (match for match in EXPANSION.find(graph) if match["x"].rank is not None)


def counted(graph: Graph) -> Iterator[Match]:
    """Yield integers that are counted as real numbers."""
    for match in COUNT.find(graph):
        parts = [match[part] for part in ("start", "stop", "step")]
        result = match.node.outputs[0].element_type
        if result in _INTEGERS and all(map(_is_whole, parts)) and match.node.source().element_type not in _INTEGERS:
            yield match


def _is_whole(value: Value) -> bool:
    return value.element_type in _INTEGERS
