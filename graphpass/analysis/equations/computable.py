"""Find nodes of a graph that can be computed from chosen values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from graphpass.analysis.symbolic.arrays import is_known
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model

_STARTS = {"Constant", "ShapeOf"}


class Computable:
    """Marks nodes that follow from chosen values, constants and shapes.

    Attributes:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        """Mark nothing yet."""
        self.graph = graph
        self._from_inputs: dict[frozenset[int], dict[int, bool]] = {}

    def from_values(self, known: Iterable[Value]) -> Callable[[Node], bool]:
        """Return the function that reports whether a node follows from ``known``, constants and shapes.

        Marks of nodes before the first value that is not an input are shared by all that start from the same inputs:
        attention of the last layer does not walk through all layers again.
        """
        nodes = {value.node for value in known}
        inputs = frozenset(index for index in nodes if self.graph.nodes[index].op == "Parameter")
        shared = self._from_inputs.setdefault(inputs, dict.fromkeys(inputs, True))
        own = dict.fromkeys(nodes - inputs, True)
        first = min(own, default=len(self.graph.nodes))
        return lambda node: self._mark(node, shared, own, first)

    def _mark(self, start: Node, shared: dict[int, bool], own: dict[int, bool], first: int) -> bool:
        def mark(index: int) -> bool | None:
            return (shared if index < first else own).get(index)

        pending = [start]
        while pending:
            node = pending[-1]
            if mark(node.index) is not None:
                pending.pop()
                continue
            sources = [value.node for value in node.inputs if value is not None]
            marks = shared if node.index < first else own
            if node.op in _STARTS or not is_known(node):
                marks[node.index] = node.op in _STARTS
            elif any(mark(source) is False for source in sources):
                marks[node.index] = False
            elif (missing := next((source for source in sources if mark(source) is None), None)) is not None:
                pending.append(self.graph.nodes[missing])
            else:
                marks[node.index] = True
        return bool(mark(start.index))


def find_computable(model: Model) -> Computable:
    """Return the computable nodes of a model, for `Model.analysis`."""
    return Computable(model.graph)
