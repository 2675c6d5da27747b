"""Find states that are written back directly after a product."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.pattern import Match, op, var
from graphpass.ir.graph import Graph, Node

_PRODUCT = op.MatMul(...)
_SCALED = op.Multiply(_PRODUCT, var()) | op.Divide(_PRODUCT, var())

#: Values that NPUW takes for logits if a Result follows: ``cut_lm_head.cpp`` of openvino.
_LOGITS = (
    _PRODUCT
    | op.Add(_PRODUCT, var())
    | op.Transpose(_PRODUCT, ...)
    | op.Convert(_PRODUCT)
    | op.Multiply(op.Tanh(_SCALED), var())
)


def written_products(graph: Graph) -> Iterator[Node]:
    """Yield each Assign of a value that NPUW takes for logits.

    NPUW makes a Result of each Assign, and looks for a product before one, perhaps with a sum, a Transpose, a Convert
    or a soft cap after it.
    """
    for assign in graph.of_op("Assign"):
        if isinstance(_LOGITS.match(graph, assign.source()), Match):
            yield assign
