"""Find vectors of positions, without a batch axis, that scale activations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_elements
from graphpass.analysis.equations.rotation import QUERY
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ONE
from graphpass.analysis.symbolic.step import LENGTH, PAST
from graphpass.ir.graph import Graph, Node, Use, Value
from graphpass.ir.model import Model
from graphpass.ir.operators import POSITIONWISE
from graphpass.ir.values import is_activation


@dataclass(frozen=True, slots=True)
class VectorUse:
    """A use of positions ``[length]`` for factors of activations.

    Attributes:
        use: The use.
        computed: Values ``[length]`` computed from it.
        reshapes: Reshapes of the factors to ``[1, length, 1 ..]``, which are products' only operands.
    """

    use: Use
    computed: tuple[Value, ...]
    reshapes: tuple[Node, ...]


def find_vector_uses(model: Model) -> Iterator[VectorUse]:
    """Yield the uses of counted positions ``[length]`` that only scale activations (Llama 4's temperature).

    Args:
        model: The model.
    """
    graph, elements = model.graph, model.analysis(find_elements)
    slot = ex.add(PAST, QUERY) if analyze_caches(model).caches else QUERY
    for node in graph.nodes:
        for value in node.outputs if node.op not in {"Constant", "Convert", "Parameter"} else ():
            if value.rank == 1 and _shape(elements, value) == (LENGTH,) and elements.of(value, (QUERY,)) is slot:
                yield from filter(None, (_scaling(graph, elements, use) for use in graph.uses(value)))


def _scaling(graph: Graph, elements: Elements, use: Use) -> VectorUse | None:
    def outputs(use: Use) -> tuple[Value, ...]:
        return use.node.outputs if use.node.op in POSITIONWISE else ()

    reached = [use, *graph.forward(outputs(use), outputs)]
    ends = [end for end in reached if not outputs(end)]
    if not ends or not all(_is_factor(graph, elements, end) for end in ends):
        return None
    computed = dict.fromkeys(value for one in reached for value in outputs(one))
    return VectorUse(use, tuple(computed), tuple(dict.fromkeys(end.node for end in ends)))


def _is_factor(graph: Graph, elements: Elements, end: Use) -> bool:
    """Return whether a Reshape to ``[1, length, 1 ..]`` only scales activations."""
    if end.node.op != "Reshape" or end.port:
        return False
    factor = end.node.outputs[0]
    sizes = _shape(elements, factor) or ()
    is_row = len(sizes) > 2 and sizes[:2] == (ONE, LENGTH) and {*sizes[2:]} == {ONE}
    return is_row and all(
        use.node.op == "Multiply" and is_activation(graph, use.node.source(1 - use.port)) for use in graph.uses(factor)
    )


def _shape(elements: Elements, value: Value) -> tuple[ex.Expr, ...] | None:
    try:
        return tuple(elements.shape(value))
    except UnknownError:
        return None
