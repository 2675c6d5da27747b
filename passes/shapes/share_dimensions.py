"""The pass `share-dimensions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.lengths.proven import find_lengths
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.rewrite import redirect
from graphpass.engine.passes import Changed, Pass, PassResult, Unchanged
from graphpass.ir.types import Dialect

if TYPE_CHECKING:
    import openvino

    from graphpass.analysis.lengths.proven import Lengths

__all__ = ["ShareDimensions"]

#: Operators between a cache and the attention that reads it.
_TOWARDS_ATTENTION = frozenset({"Broadcast", "Concat", "Convert", "Reshape", "Transpose", "Unsqueeze"})


@dataclass(frozen=True)
class ShareDimensions(Pass[OpenVINOModel]):
    """Read each dimension in one place, and compute each length once.

    Exporters trace ``x.shape`` at every use, so that each layer asks its own key, mask and query how long they are. A
    runtime cannot know that all layers' caches are equally long, and does the work for each. What is computed of
    dimensions is computed where it is cheapest: of the inputs, and of the first cache's length.

    Two dimensions count as equal where every inference that succeeds has them equal: OpenVINO's shape inference merges
    them (Concat, for example, takes no others), key and value of one attention are equally long, and caches of kind kv
    to which each step appends the same are. What depends on no dimension stays: runtimes fold it, and some recognise
    operators by how it is written.

    Shapes:
        integer tensors of at most 16 elements; anything else stays.

    Before:
        layer 0: ShapeOf(key) -> Gather(2) -> Slice(mask); layer 1: ShapeOf(key) -> Gather(2) -> Slice(mask)
    After:
        Add(past length, length) -> Slice(mask), Slice(mask)
    """

    name: ClassVar[str] = "share-dimensions"
    dialect: ClassVar[Dialect | None] = "openvino"

    def run(self, model: OpenVINOModel) -> PassResult:
        """See `Pass.run`."""
        sizes = find_lengths(model)
        depths = _depths(model.ov_model)
        late = _of_attention_operands(model.ov_model, sizes)
        first: dict[object, tuple[int, openvino.Output]] = {}
        held: list[tuple[object, openvino.Output]] = []
        for op in model.ov_model.get_ordered_ops():
            for output in op.outputs():
                value = sizes.value(output)
                if value is None or all(size.plain is not None for size in value):
                    continue
                key = (value, str(output.get_partial_shape()), output.get_element_type().to_string())
                held.append((key, output))
                depth = depths[op.get_name()]
                if op.get_name() not in late and (key not in first or depth < first[key][0]):
                    first[key] = depth, output
        others = [(output, first[key][1]) for key, output in held if key in first and first[key][1] != output]
        shared = sum(redirect(output, source) for output, source in others)
        if not shared:
            return Unchanged()
        model.ov_model.validate_nodes_and_infer_types()
        return Changed(model, {"reads shared": shared})


def _depths(model: openvino.Model) -> dict[str, int]:
    """For each node, the length of the longest path that leads to it."""
    depths: dict[str, int] = {}
    for op in model.get_ordered_ops():
        sources = (depths[source.get_node().get_name()] for source in op.input_values())
        depths[op.get_name()] = 1 + max(sources, default=0)
    return depths


def _of_attention_operands(model: openvino.Model, sizes: Lengths) -> set[str]:
    """The names of nodes that compute sizes of a key or value, which no others may read.

    The CPU plugin makes the grown cache an output of attention: a mask or query of its size would wait for itself.
    """
    operands: set[str] = set()
    late: set[str] = set()
    pending = [
        op.input_value(port).get_node()
        for op in model.get_ordered_ops()
        for port in (1, 2)
        if op.get_type_name() == "ScaledDotProductAttention"
    ]
    while pending:
        node = pending.pop()
        if node.get_type_name() in _TOWARDS_ATTENTION and node.get_name() not in operands:
            operands.add(node.get_name())
            pending.append(node.input_value(0).get_node())
    for op in model.get_ordered_ops():
        sources = {source.get_node().get_name() for source in op.input_values()}
        reads = sources & (operands if op.get_type_name() == "ShapeOf" else late)
        if reads and any(sizes.value(output) is not None for output in op.outputs()):
            late.add(op.get_name())
    return late
