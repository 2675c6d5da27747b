"""The pass `canonicalize-shapes`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphpass.analysis.attention.assigned_slices import assigned_slice
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.pattern import Match, op, var
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Value
from graphpass.ir.rewriter import Handle, Rewriter

_SIZES = op.ShapeOf(var("x"))

#: Copies axes of size 1 to the sizes of a target, and keeps others.
EXPANSION = op.Broadcast(var("x"), op.Select(op.Equal(_SIZES, 1), var("target"), _SIZES), ...)

#: Counts integers as real numbers.
COUNT = op.Convert(op.Range(var("start"), var("stop"), var("step")))

_INTEGERS = frozenset({"i32", "i64"})


@dataclass(frozen=True)
class CanonicalizeShapes(Pass[OpenVINOModel]):
    """Write expanded axes, counted positions and sizes of caches as other exporters do.

    OpenVINO's frontend for torch.export computes the sizes of ``expand`` from those of its input, so that no plugin
    (2026.4.1) fuses attention with its cache, and counts positions in f32. transformers (5.24) leaves all sizes of
    recurrent states open, so that no initial state can be built. Keys that are joined of two parts by assignments to
    slices copy all positions element by element.

    Before:
        Broadcast(x, Select(ShapeOf(x) == 1, target, ShapeOf(x))); Convert(Range in f32); a state [?, ?, ?, ?];
        x[..., :n] = y, written by a ScatterNDUpdate of flat elements
    After:
        Broadcast(x, target) in both directions; Range in i64; a state [?, heads, head_dim, state_size];
        Concat(y, x[..., n:])
    """

    name = "canonicalize-shapes"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
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
        assigned = _join(graph, rewriter)
        caches = list(open_caches(model))
        for cache in caches:
            sizes = [size if isinstance(size, int) else None for size in cache.shape or ()]
            rewriter.resize_port(graph.reads[cache.read], sizes)
        rewriter.finish()
        totals = {
            "expansions": len(expansions),
            "ranges counted in integers": len(counts),
            "assigned slices joined": assigned,
            "caches with open sizes": len(caches),
        }
        return Done({words: count for words, count in totals.items() if count})


@dataclass(frozen=True, slots=True)
class _Piece:
    """Places ``start`` to ``stop`` of an axis.

    Attributes:
        start: The first place.
        stop: The place after the last.
        source: The tensor that has them.
        first: The place of its first entry.
        size: Number of its entries.
    """

    start: int
    stop: int
    source: Value
    first: int
    size: int

    def without(self, start: int, stop: int) -> Iterator[_Piece]:
        """Yield what lies before ``start`` and from ``stop`` on."""
        for piece in (replace(self, stop=min(self.stop, start)), replace(self, start=max(self.start, stop))):
            if piece.start < piece.stop:
                yield piece

    def write(self, rewriter: Rewriter, axis: int) -> Handle:
        """Return the places, sliced out of the tensor if it has others."""
        handle = rewriter.handle(self.source)
        if self.stop - self.start == self.size:
            return handle
        return rewriter.under(self.source.name).slice(handle, self.start - self.first, self.stop - self.first, axis)


def _join(graph: Graph, rewriter: Rewriter) -> int:
    """Write tensors with assigned slices as Concats of their pieces; return the number of assignments."""
    assignments: dict[tuple[Value, int], list[_Piece]] = {}
    for node in graph.of_op("Reshape"):
        assigned = assigned_slice(graph, node)
        size = None if assigned is None or assigned.base.shape is None else assigned.base.shape[assigned.axis]
        if assigned is None or not isinstance(size, int):
            continue
        start, stop = assigned.start, assigned.stop
        whole = [_Piece(0, size, assigned.base, 0, size)]
        before = assignments.get((assigned.base, assigned.axis), whole)
        pieces = [piece for part in before for piece in part.without(start, stop)]
        pieces.append(_Piece(start, stop, assigned.update, start, stop - start))
        pieces.sort(key=lambda piece: piece.start)
        assignments[node.outputs[0], assigned.axis] = pieces
        parts = [piece.write(rewriter, assigned.axis) for piece in pieces]
        write = rewriter.under(node.name)
        rewriter.replace(node.outputs[0], write.op("Concat", *parts, axis=assigned.axis))
    return len(assignments)


def expanded(graph: Graph) -> Iterator[Match]:
    """Yield Broadcasts whose target is chosen by the sizes of their input."""
    return (match for match in EXPANSION.find(graph) if match["x"].rank is not None)


def counted(graph: Graph) -> Iterator[Match]:
    """Yield integers that are counted as real numbers."""
    for match in COUNT.find(graph):
        whole = (match.node.outputs[0], match["start"], match["stop"], match["step"])
        is_whole = all(value.element_type in _INTEGERS for value in whole)
        if is_whole and match.node.source().element_type not in _INTEGERS:
            yield match


def open_caches(model: OpenVINOModel) -> Iterator[Cache]:
    """Yield caches whose past declares a size open that the graph fixes."""
    for cache in analyze_caches(model).caches:
        sizes = zip(model.graph.reads[cache.read].outputs[0].shape or (), cache.shape or (), strict=False)
        if any(isinstance(size, int) and not isinstance(declared, int) for declared, size in sizes):
            yield cache
