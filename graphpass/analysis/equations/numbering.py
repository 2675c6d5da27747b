"""Number values such that equal numbers mean equal computations.

Exporters trace a mask once and cut it in each layer, so that layers seem to have masks of their own.
"""

from __future__ import annotations

from collections.abc import Hashable

from graphpass.analysis.equations.operators import is_known
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.model import Model

#: Constants of more elements are equal only if they are one.
_LARGEST = 4096


def find_numbers(model: Model) -> Numbers:
    """Number the values of ``model``, for `Model.analysis`."""
    return Numbers(model.graph, model.analysis(infer_sizes))


class Numbers:
    """Numbers of all values of one graph."""

    def __init__(self, graph: Graph, sizes: Sizes) -> None:
        """Number the values in execution order."""
        self._graph = graph
        self._sizes = sizes
        self._numbers: dict[Hashable, int] = {}
        self._found: dict[tuple[int, int], int] = {}
        for node in graph.nodes:
            for value in node.outputs:
                key = self._key(node, value)
                self._found[value.node, value.port] = self._numbers.setdefault(key, len(self._numbers))

    def of(self, value: Value) -> int:
        """Return the number of ``value``."""
        return self._found[value.node, value.port]

    def of_size(self, value: Value) -> Hashable:
        """Return the sizes of ``value``, equal ones for equal sizes."""
        return self._sizes.shape(value), value.element_type

    def _key(self, node: Node, value: Value) -> Hashable:
        content = self._sizes.content(value)
        if content is not None:
            return content, value.rank, value.element_type
        if node.op == "Constant":
            held = self._graph.constant(value, _LARGEST) if value.element_type != "dynamic" else None
            return node.index if held is None else (held.tobytes(), held.shape, value.element_type)
        if not is_known(node):
            return node.index, value.port
        # Known operators have no more attributes than these.
        attributes = tuple((name, repr(given)) for name, given in sorted(node.attributes.items()))
        inputs = tuple(None if one is None else self.of(one) for one in node.inputs)
        return node.op, value.port, value.element_type, value.rank, attributes, inputs
