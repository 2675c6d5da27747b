"""The pass `reshape-by-constants`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.shapes.linear_size import Vector
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Node


@dataclass(frozen=True)
class ReshapeByConstants(Pass[OnnxModel]):
    """Let Reshapes copy dimensions of their input instead of reading shapes.

    Exporters trace ``x.view(batch, length, heads, head_dim)`` with the batch and length read from a shape, in each
    layer. A 0 copies the dimension in its place, and a -1 stands for what is left. A dimension is copied if it has that
    size in every inference that succeeds (`find_lengths`).

    Shapes:
        input of any rank; a target of any rank with no more than one dimension that is neither copied nor a number

    Before:
        Concat(Gather(ShapeOf(x), 0), Gather(ShapeOf(x), 1), 4, 16) -> Reshape(x, .)
    After:
        Reshape(x, [0, 0, 4, 16])
    """

    name = "reshape-by-constants"
    dialect = "onnx"

    def run(self, model: OnnxModel) -> Done:
        graph, sizes, rewriter = model.graph, find_lengths(model), model.rewriter()
        count = 0
        for node in graph.of_op("Reshape"):
            target = sizes.content(node.inputs[1])
            if graph.producer(node.source(1)).op == "Constant" or target is None:
                continue
            source = sizes.shape(node.source()) or ()
            shape = [_copied_or_number(node, axis, source, target) for axis in range(len(target))]
            if shape.count(-1) <= 1 and None not in shape:
                rewriter.set_shape(node, [size for size in shape if size is not None])
                count += 1
        rewriter.finish()
        return Done({"shapes made constant": count} if count else {})


def _copied_or_number(node: Node, axis: int, source: Vector, target: Vector) -> int | None:
    """Return 0, a number, or -1 for what is left; ``None`` if 0 copies nothing."""
    size = target[axis]
    if size.as_int == 0 and not node.attributes.get("special_zero", True):
        return None
    if size.as_int is not None:
        return size.as_int
    return 0 if axis < len(source) and source[axis] == size else -1
