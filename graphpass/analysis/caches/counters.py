"""Find inputs that count the positions before a step, as transformers' static caches have."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Elements, UnknownError
from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.analysis.symbolic.step import LENGTH
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.values import INTEGERS


def counter_candidates(graph: Graph) -> tuple[Value, ...]:
    """Return the integer inputs of one element.

    Args:
        graph: A graph.
    """
    return tuple(
        value
        for value in graph.parameters.values()
        if value.element_type in INTEGERS and value.shape is not None and all(size == 1 for size in value.shape)
    )


def find_counters(elements: Elements) -> dict[str, tuple[Node, ...]]:
    """Return the inputs that count positions, with the outputs that return them.

    The output is the input plus the number of new tokens. A caller that begins with 0 and passes the output on feeds
    the number of positions before the step.

    Args:
        elements: Symbolic elements of the graph, in lengths of the step.

    Returns:
        The Results by name of the input.
    """
    graph, counters = elements.graph, {}
    results = [result for result in graph.of_op("Result") if result.source().element_type in INTEGERS]
    for value in counter_candidates(graph):
        after = ex.add(counted(elements, value), LENGTH)
        if returned := tuple(result for result in results if _only(elements, result.source()) is after):
            counters[graph.producer(value).name] = returned
    return counters


def counted(elements: Elements, counter: Value) -> Expr:
    """Return the only element of an input.

    Args:
        elements: Symbolic elements of its graph.
        counter: A value of `counter_candidates`.
    """
    return elements.of(counter, (ZERO,) * (counter.rank or 0))


def _only(elements: Elements, value: Value) -> Expr | None:
    """Return the only element of a tensor; ``None`` if it has several."""
    try:
        sizes = elements.shape(value)
    except UnknownError:
        return None
    return elements.of(value, (ZERO,) * len(sizes)) if all(size is ex.ONE for size in sizes) else None
