"""The pass `reshape-by-constants`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.analysis.lengths.proven import find_lengths
from graphpass.analysis.symbolic.constant_shape import constant_shape
from graphpass.analysis.symbolic.equal_sizes import Vector
from graphpass.analysis.symbolic.expressions import ONE
from graphpass.analysis.symbolic.folding import fold
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import NO_DATA
from graphpass.ir.values import INTEGERS, known_elements

if TYPE_CHECKING:
    import numpy

#: Maximum number of elements of a tensor that is folded as sizes.
_FEW = 16


@dataclass(frozen=True)
class ReshapeByConstants(Pass[Model]):
    """Replace computed targets of Reshapes by constants, and fold constant sizes.

    Exporters trace ``x.view(batch, length, heads, head_dim)`` with batch and length read from a shape, in each layer.
    In a constant target, 0 copies the input's dimension with the same index, and -1 is inferred. A dimension is copied
    if it has that size in every inference that succeeds (`find_lengths`). Integers computed only from constant
    dimensions, such as the middle of an axis, become constants.

    Options:
        unknown: Rewrite only Reshapes with a constant dimension that shape inference does not find. OpenVINO's GPU
            plugin (2026.4.1) copies wrong heads of a cache if the number of heads of new entries is dynamic.
        rows: Rewrite only constant targets of one row and an inferred number of tokens, so that both are copied:
            ``[1, -1, 4, 16]`` becomes ``[0, 0, 4, 16]``. Paged attention (openvino.genai 2026.4.1) makes a row of each
            token.

    Shapes:
        input of any rank; a target of any rank with at most one dimension that is neither copied nor constant

    Before:
        Concat(Gather(ShapeOf(x), 0), Gather(ShapeOf(x), 1), 4, 16) -> Reshape(x, .)
    After:
        Reshape(x, [0, 0, 4, 16])
    """

    name = "reshape-by-constants"

    unknown: bool = False
    rows: bool = False

    def run(self, model: Model) -> Done:
        folded = 0
        if not (self.unknown or self.rows):
            rewriter = model.rewriter()
            for value, numbers in _fixed(model.graph):
                rewriter.replace(value, rewriter.under(model.graph.producer(value).name).constant(numbers))
                folded += 1
            rewriter.finish()
        graph, sizes, rewriter = model.graph, find_lengths(model), model.rewriter()
        count = 0
        for node in graph.of_op("Reshape"):
            if (graph.producer(node.source(1)).op == "Constant") is not self.rows:
                continue
            if self.unknown and not _is_open(node, sizes.shape(node.outputs[0])):
                continue
            shape = _copied_rows(node, sizes) if self.rows else constant_shape(node, sizes)
            if shape is not None:
                rewriter.set_shape(node, shape)
                count += 1
        rewriter.finish()
        counts = {"shapes made constant": count, "sizes made constant": folded}
        return Done({name: count for name, count in counts.items() if count})


def _fixed(graph: Graph) -> Iterator[tuple[Value, numpy.ndarray]]:
    """Yield small constant integers that nodes with dynamic results read."""
    fixed = {
        value: numbers
        for node in graph.nodes
        for value in node.outputs
        if node.op not in NO_DATA | {"Parameter"} and value.element_type in INTEGERS
        if value.shape is not None and known_elements(value) <= _FEW
        if (numbers := fold(graph, value)) is not None and numbers.size <= _FEW
    }
    for value, numbers in fixed.items():
        if any(
            not use.node.outputs or any(output not in fixed for output in use.node.outputs) for use in graph.uses(value)
        ):
            yield value, numbers


def _copied_rows(node: Node, sizes: Sizes) -> list[int] | None:
    """Return a target that copies one row and its tokens, if proven equal."""
    target, before, after = sizes.content(node.source(1)), sizes.shape(node.source()), sizes.shape(node.outputs[0])
    if target is None or before is None or after is None or [size.as_number for size in target[:2]] != [1, -1]:
        return None
    if len(before) < 2 or before[:2] != after[:2] or before[0] is not ONE:
        return None
    return [0, 0, *(int(size.as_number or 0) for size in target[2:])]


def _is_open(node: Node, known: Vector | None) -> bool:
    """Return whether a constant size of the result is dynamic in its declared shape."""
    sizes = zip(node.outputs[0].shape or (), known or (), strict=False)
    return any(size.op == "number" and not isinstance(declared, int) for declared, size in sizes)
