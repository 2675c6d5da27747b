"""Find the outputs of a model that conflict with NPUW's cut before the logits."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.pattern import Match, op, var
from graphpass.ir.graph import Graph, Node

_PRODUCT = op.MatMul(var("hidden"), ...)
_SCALED = op.Multiply(_PRODUCT, var()) | op.Divide(_PRODUCT, var())

#: Values that NPUW regards as logits if a Result reads them: ``cut_lm_head.cpp`` of openvino.
_LOGITS = (
    _PRODUCT
    | op.Add(_PRODUCT, var())
    | op.Transpose(_PRODUCT, ...)
    | op.Convert(_PRODUCT)
    | op.Multiply(op.Tanh(_SCALED), var())
)


def crosses_logits_cut(graph: Graph) -> Iterator[Node]:
    """Yield each Assign and Result that conflicts with NPUW's cut before the logits.

    NPUW replaces each Assign by a Result, and cuts the model before a product that a Result reads, directly or through
    an Add, a Transpose, a Convert or a soft cap. The product may be another one than that of the logits. A Result that
    reads the cut value itself fits in neither part.
    """
    logits = next((node for node in graph.of_op("Result") if node.name == "logits"), None)
    product = None if logits is None else _LOGITS.match(graph, logits.source())
    hidden = product["hidden"] if isinstance(product, Match) else None
    for node in graph.of_op("Assign", "Result"):
        value = node.source()
        if node != logits and (value == hidden or isinstance(_LOGITS.match(graph, value), Match)):
            yield node
