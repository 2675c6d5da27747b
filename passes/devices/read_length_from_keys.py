"""The pass `read-length-from-keys`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import asked_axes, length_reads, past_of
from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Done, Pass
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Use, Value
from graphpass.ir.writer import Handle


@dataclass(frozen=True)
class ReadLengthFromKeys(Pass[OpenVINOModel]):
    """Read the past's length from keys, after their Gather by beam index.

    NPUW stores values transposed, ``[batch, heads, head_dim, sequence]``, but does not update readers of their shape
    (``optimize_value_tensors.cpp`` of openvino): they read ``head_dim`` as the length, and masks get a wrong shape.
    Exporters read the length from the cache that was traced first, a key or a value. NPUW also replaces
    the Gather by an input (``stateful_to_stateless.cpp``), and fails with ``undeclared Variables`` if a variable has
    another reader, as after OpenVINO's common transformations.

    The pass only moves dimensions that `find_lengths` proves equal.

    Shapes:
        key and value ``[batch, heads, sequence, head_dim]``, with equal dimensions where they are read.

    Before:
        value -> ShapeOf -> Gather(2)
    After:
        key -> ShapeOf -> Gather(2)

    Raises:
        PreconditionError: GP302, the model is not stateful.
    """

    name = "read-length-from-keys"
    dialect = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> Done:
        graph, reads, caches = model.graph, model.graph.reads, analyze_caches(model).of_kind("kv")
        keys = {cache.layer: cache for cache in caches if cache.role == "key"}
        asked: dict[Cache, list[Use]] = {}
        for cache in caches:
            if cache.layer in keys:
                read = reads[cache.read]
                kept = past_of(graph, read) if cache.role == "key" else None
                uses = [use for use in length_reads(graph, read) if _shaped(graph, use) != kept]
                asked |= {cache: uses} if uses else {}
        if not asked:
            return Done()
        rewriter, sizes, moved = model.rewriter(), find_lengths(model), 0
        for cache, uses in asked.items():
            key = past_of(graph, reads[keys[cache.layer].read])
            write = rewriter.under(f"{graph.producer(key).name}/length")
            made: dict[str, Handle] = {}
            for use in uses:
                if use.node.op != "Result" and _is_equal(graph, sizes, use, key):
                    kind = use.node.source(use.port).element_type
                    length = made[kind] = made.get(kind) or write.op("ShapeOf", key, output_type=kind)
                    rewriter.redirect(use.node, use.port, length)
                    moved += 1
        rewriter.finish()
        return Done({"lengths read from keys": moved})


def _is_equal(graph: Graph, sizes: Sizes, use: Use, key: Value) -> bool:
    known, other = sizes.shape(_shaped(graph, use)), sizes.shape(key)
    if known is None or other is None:
        return False
    return all(known[axis] == other[axis] for axis in asked_axes(graph, use))


def _shaped(graph: Graph, use: Use) -> Value:
    """Return the tensor whose shape a use reads."""
    return graph.producer(use.node.source(use.port)).source()
