"""Read the epsilon of normalization nodes; find norms of few channels."""

from __future__ import annotations

from collections.abc import Iterator

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.ir.graph import Graph, Node
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, NORMS, REDUCTIONS
from graphpass.ir.values import fixed_size

#: Attributes of the epsilon: of ONNX's and com.microsoft's norms, and of OpenVINO's MVN.
_ATTRIBUTES = ("epsilon", "eps")

#: Exclusive upper limit of an epsilon.
_MOST = 1e-2


def find_epsilons(model: Model) -> tuple[tuple[str, float], ...]:
    """Return node and epsilon of each norm: an attribute, or added to a mean."""
    return tuple(_epsilons(model))


def _epsilons(model: Model) -> Iterator[tuple[str, float]]:
    graph = model.graph
    for node in graph.nodes:
        if node.op in NORMS:
            yield from ((node.name, float(node.attributes[name])) for name in _ATTRIBUTES if name in node.attributes)
        for port, value in enumerate(node.inputs) if node.op in {"Add", "Maximum"} and len(node.inputs) == 2 else ():
            other = node.input(1 - port)
            if value is None or other is None or graph.producer(graph.look_through(other, CASTS)).op not in REDUCTIONS:
                continue
            number = fold_scalar(graph, value)
            if number is not None and 0 < number < _MOST:
                yield node.name, number


def narrow_norms(graph: Graph, width: int) -> Iterator[tuple[Node, int]]:
    """Yield RMS norms of few channels, with rows along several axes.

    Args:
        graph: The graph.
        width: Most channels, the size of the last axis.

    Yields:
        The norm and its number of channels.
    """
    for norm in graph.of_op("RMSNormalization", "SimplifiedLayerNormalization"):
        source = norm.source()
        shape, channels = source.shape, fixed_size(source, -1)
        is_last = norm.attributes.get("axis", -1) in {-1, (source.rank or 0) - 1}
        if shape and channels is not None and channels <= width and is_last and any(size != 1 for size in shape[:-2]):
            yield norm, channels
