"""Find exponents that may be very negative."""

from __future__ import annotations

from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.ir.graph import Graph, Value


def is_bounded(graph: Graph, exponent: Value, least: float) -> bool:
    """Return whether a constant, a Clip or a Maximum keeps exponents above ``least``."""
    source = graph.producer(exponent)
    bounds = source.inputs[1:2] if source.op == "Clip" else source.inputs if source.op == "Maximum" else ()
    numbers = [fold_scalar(graph, value) for value in bounds if value is not None]
    return source.op == "Constant" or any(number is not None and number >= least for number in numbers)
