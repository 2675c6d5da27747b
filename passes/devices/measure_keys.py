"""The pass `measure-keys`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.proven import find_lengths
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import named, output_of
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect
from graphpass.targets.npu.npu_values import asked_axes, length_reads, past_of

if TYPE_CHECKING:
    import openvino

__all__ = ["MeasureKeys"]


@dataclass(frozen=True)
class MeasureKeys(Pass[OpenVINOModel]):
    """Ask the keys of a layer, not its values, how long the past is.

    NPUW keeps values transposed, ``[batch, heads, head_dim, sequence]``, and leaves those alone that ask for their
    shape (``optimize_value_tensors.cpp`` of openvino): who asks a value for the past's length gets the size of a head,
    and no mask fits. Exporters ask whichever cache was traced first.

    Dimensions count as equal where `find_lengths` proves them to be.

    Shapes:
        key and value ``[batch, heads, sequence, head_dim]``; what is asked of them is equal, or stays as it is.

    Before:
        value -> ShapeOf -> Gather(2)
    After:
        key -> ShapeOf -> Gather(2)

    Raises:
        PreconditionError: GP302 the model is not stateful.
    """

    name: ClassVar[str] = "measure-keys"
    dialect: ClassVar[Dialect | None] = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        graph, caches = model.graph, analyze_caches(model).of_kind("kv")
        reads = {node.name: node for node in graph.of_op("ReadValue")}
        keys = {cache.layer: cache for cache in caches if cache.role == "key"}
        asked = {
            cache: uses
            for cache in caches
            if cache.role == "value" and cache.layer in keys and (uses := [*length_reads(graph, reads[cache.read])])
        }
        if not asked:
            return Unchanged()
        sizes = find_lengths(model)
        moved = 0
        for value, uses in asked.items():
            key = past_of(graph, reads[keys[value.layer].read])
            made: dict[str, openvino.Output] = {}
            for use in uses:
                shape = use.node.source(use.port)
                known, other = sizes.shape(graph.producer(shape).inputs[0]), sizes.shape(key)
                is_equal = known and other and all(known[axis] == other[axis] for axis in asked_axes(graph, use))
                if is_equal and use.node.op != "Result":
                    kind = shape.element_type
                    if kind not in made:
                        made[kind] = _shape_of(output_of(graph, key), kind)
                    use.node.native.input(use.port).replace_source_output(made[kind])
                    moved += 1
        if not moved:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"lengths asked of keys": moved})


def _shape_of(key: openvino.Output, kind: str) -> openvino.Output:
    from openvino import opset13

    return named(opset13.shape_of(key, kind), f"{key.get_node().get_friendly_name()}/shape").output(0)
