"""The pass `canonicalize-shapes`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphpass.analysis.attention.assigned_slices import assigned_slice
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.pattern import Match, op, var
from graphpass.analysis.symbolic.hidden_size import hidden_size
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.inputs import EMBEDDINGS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle

_SIZES = op.ShapeOf(var("x"))

#: Expands axes of size 1 to the dimensions of a target.
EXPANSION = op.Broadcast(var("x"), op.Select(op.Equal(_SIZES, 1), var("target"), _SIZES), ...)

#: A Range of integers, computed in a floating-point type.
COUNT = op.Convert(op.Range(var("start"), var("stop"), var("step")))

_INTEGERS = frozenset({"i32", "i64"})


@dataclass(frozen=True)
class CanonicalizeShapes(Pass[OpenVINOModel]):
    """Rewrite expansions, Ranges, cache shapes and slice assignments of torch.export to common forms.

    - OpenVINO's frontend for torch.export computes the shape of ``expand`` from its input, so that plugins (2026.4.1)
      do not fuse attention with its cache. It also counts positions in f32.
    - transformers (5.24) declares all dimensions of recurrent states dynamic, so that no initial value can be written,
      and those of ``inputs_embeds``, of which NPUW and paged attention require the last.
    - Assignments to slices, which join keys from two parts, copy all positions element by element.

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
        embeddings = open_embeddings(model)
        if embeddings is not None:
            rewriter.resize_port(embeddings, [None, None, hidden_size(model)])
        rewriter.finish()
        totals = {
            "expansions": len(expansions),
            "ranges counted in integers": len(counts),
            "assigned slices joined": assigned,
            "caches with open sizes": len(caches),
            "embeddings with open size": int(embeddings is not None),
        }
        return Done({name: count for name, count in totals.items() if count})


@dataclass(frozen=True, slots=True)
class _Part:
    """Indices ``start`` to ``stop`` of an axis, and the tensor that stores them.

    Attributes:
        start: The first index.
        stop: The index after the last.
        source: The tensor that stores them.
        first: The index of the tensor's first entry.
        size: Number of the tensor's entries.
    """

    start: int
    stop: int
    source: Value
    first: int
    size: int

    def without(self, start: int, stop: int) -> Iterator[_Part]:
        """Yield the parts before ``start`` and from ``stop`` on."""
        for part in (replace(self, stop=min(self.stop, start)), replace(self, start=max(self.start, stop))):
            if part.start < part.stop:
                yield part

    def write(self, rewriter: Rewriter, axis: int) -> Handle:
        """Return the indices' slice of the tensor, or the whole tensor."""
        handle = rewriter.handle(self.source)
        if self.stop - self.start == self.size:
            return handle
        return rewriter.under(self.source.name).slice(handle, self.start - self.first, self.stop - self.first, axis)


def _join(graph: Graph, rewriter: Rewriter) -> int:
    """Replace assignments to slices by Concats of the parts.

    Returns:
        The number of assignments.
    """
    assignments: dict[tuple[Value, int], list[_Part]] = {}
    for node in graph.of_op("Reshape"):
        assigned = assigned_slice(graph, node)
        size = None if assigned is None or assigned.base.shape is None else assigned.base.shape[assigned.axis]
        if assigned is None or not isinstance(size, int):
            continue
        start, stop = assigned.start, assigned.stop
        whole = [_Part(0, size, assigned.base, 0, size)]
        before = assignments.get((assigned.base, assigned.axis), whole)
        parts = [rest for part in before for rest in part.without(start, stop)]
        parts.append(_Part(start, stop, assigned.update, start, stop - start))
        parts.sort(key=lambda part: part.start)
        assignments[node.outputs[0], assigned.axis] = parts
        handles = [part.write(rewriter, assigned.axis) for part in parts]
        write = rewriter.under(node.name)
        rewriter.replace(node.outputs[0], write.op("Concat", *handles, axis=assigned.axis))
    return len(assignments)


def expanded(graph: Graph) -> Iterator[Match]:
    """Return Broadcasts with a target selected by the shape of their input."""
    return (match for match in EXPANSION.find(graph) if match["x"].rank is not None)


def counted(graph: Graph) -> Iterator[Match]:
    """Yield Ranges of integers in a floating-point type."""
    for match in COUNT.find(graph):
        whole = (match.node.outputs[0], match["start"], match["stop"], match["step"])
        is_whole = all(value.element_type in _INTEGERS for value in whole)
        if is_whole and match.node.source().element_type not in _INTEGERS:
            yield match


def open_embeddings(model: OpenVINOModel) -> Node | None:
    """Return the input of embeddings if the graph implies its dynamic last dimension."""
    node = model.graph.reads.get(EMBEDDINGS)
    is_open = node is not None and node.outputs[0].rank == 3 and fixed_size(node.outputs[0], 2) is None
    return node if is_open and hidden_size(model) is not None else None


def open_caches(model: OpenVINOModel) -> Iterator[Cache]:
    """Yield caches with a dynamic dimension that the graph implies to be constant."""
    for cache in analyze_caches(model).caches:
        sizes = zip(model.graph.reads[cache.read].outputs[0].shape or (), cache.shape or (), strict=False)
        if any(isinstance(size, int) and not isinstance(declared, int) for declared, size in sizes):
            yield cache
