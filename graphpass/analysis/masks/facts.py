"""Read a mask's parts: conditions on positions, inputs of the model, biases.

Masks are followed upstream to the origins of their numbers; an unknown node makes the whole answer unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphpass.analysis.masks.comparisons import Comparison, bound_of_positions, compared_positions
from graphpass.analysis.masks.constants import LARGEST_MASK, band_of, seen_in
from graphpass.ir.cache import MaskPart
from graphpass.ir.constants import fold_elements, fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import (
    ARITHMETIC,
    COMPARISONS,
    EXTREMA,
    KEEPS_ORDER,
    LAYOUT,
    LOGICAL,
    MOVES,
    PICKS,
    SCATTERS,
)
from graphpass.ir.pattern import Match, op, var
from graphpass.ir.values import MASKED_BELOW, REALS, fixed_size

if TYPE_CHECKING:
    import numpy


#: In the order in which they are reported.
MASK_PARTS: tuple[MaskPart, ...] = ("causal", "input", "lengths", "alibi", "bias")

#: Lay out the first input, or take a part of it.
_LAYOUT = LAYOUT | PICKS | {"ConvertLike", "Flatten", "Pad", "ReverseSequence"}

#: Make a mask of all inputs.
_JOINS = (
    ARITHMETIC
    | EXTREMA
    | COMPARISONS.keys()
    | LOGICAL
    | {"Concat", "Equal", "IsInf", "IsNaN", "Negative", "NotEqual", "Select"}
)


@dataclass(slots=True)
class MaskFacts:
    """Facts of a mask.

    Attributes:
        windows: Number of positions that a query sees, itself included, for each window found.
        unknown: Name of the first node that is not understood; the parts are then incomplete.
    """

    parts: set[MaskPart] = field(default_factory=set)
    windows: set[int] = field(default_factory=set)
    unknown: str | None = None

    def add(self, other: MaskFacts) -> None:
        """Add the facts of another mask of the same attention."""
        self.parts |= other.parts
        self.windows |= other.windows
        self.unknown = self.unknown or other.unknown

    def add_bound(self, bound: int, name: str) -> None:
        """Add a condition that separates keys more than ``bound`` positions after the query."""
        if bound == 0:
            self.parts.add("causal")
        elif bound < -1:
            self.windows.add(-bound)
        else:
            # Only the query itself, or keys some positions after it: no form that masks have.
            self.unknown = self.unknown or name


def mask_facts(graph: Graph, mask: Value) -> MaskFacts:
    """Return the facts of ``mask``, a condition or a tensor added to the scores."""
    facts = MaskFacts()
    for _ in graph.backward([mask], lambda node: _read(graph, node, facts)):
        pass
    return facts


def _read(graph: Graph, node: Node, facts: MaskFacts) -> tuple[Value | None, ...]:
    """Add the facts of ``node`` and return the inputs that contribute, too."""
    if node.op == "Trilu":
        _add_trilu(graph, node, facts)
    elif node.op == "Parameter":
        facts.parts.add("input")
    elif node.op == "Constant":
        _add_constant(graph, node.outputs[0], facts)
    elif (comparison := compared_positions(graph, node.outputs[0])) is not None:
        _add_comparison(graph, comparison, node.name, facts)
    elif alibi_operands(graph, node) is not None:
        facts.parts.add("alibi")
    elif _is_table(graph, node):
        facts.parts.add("bias")
    elif (sources := _sources(node)) is not None:
        return sources
    else:
        facts.unknown = facts.unknown or node.name
    return ()


def _sources(node: Node) -> tuple[Value | None, ...] | None:
    """Return the inputs that make a mask; ``None`` if ``node`` makes none."""
    if node.op in _LAYOUT:
        return node.inputs[:1]
    if node.op in SCATTERS:
        return node.inputs[0], node.inputs[2]
    if node.op in {"ConstantOfShape", "ShapeOf"}:
        return ()
    return node.inputs[1:] if node.op == "If" else node.inputs if node.op in _JOINS else None


def added_terms(graph: Graph, mask: Value) -> list[Value]:
    """Return the terms of a sum, innermost first, looking through bounds."""
    terms: list[Value] = []
    pending = [mask]
    while pending:
        value = pending.pop()
        total = graph.producer(unbounded(graph, value))
        if total.op == "Add":
            pending += [operand for operand in reversed(total.inputs) if operand is not None]
        else:
            terms.append(value)
    return terms


def _is_low(graph: Graph, value: Value) -> str | None:
    held = fold_elements(graph, value)
    return None if held is not None and (held <= MASKED_BELOW).all() else f"{value.name} is not below {MASKED_BELOW:g}"


#: Keeps added numbers from falling far below masked ones.
_BOUNDED = op.Maximum(var("value"), var().where(_is_low))


def unbounded(graph: Graph, value: Value) -> Value:
    """Return ``value`` without the Maximum that bounds masked numbers from below."""
    while isinstance(match := _BOUNDED.match(graph, value), Match):
        value = match["value"]
    return value


def _add_comparison(graph: Graph, comparison: Comparison, name: str, facts: MaskFacts) -> None:
    queries = comparison.queries
    if _holds_positions(graph, queries):
        facts.add_bound(bound_of_positions(graph, comparison), name)
    elif queries.shape is None or len(queries.shape) < 3:
        # Positions of the queries, and lengths of the sequences of a batch, may both be [n, 1].
        facts.unknown = facts.unknown or name
    elif queries.shape[-2] == 1:
        facts.parts.add("lengths")
    else:
        facts.add_bound(bound_of_positions(graph, comparison), name)


def _add_trilu(graph: Graph, node: Node, facts: MaskFacts) -> None:
    offset = fold_scalar(graph, node.input(1)) if node.input(1) is not None else 0.0
    if offset is None:
        facts.unknown = facts.unknown or node.name
    else:
        facts.add_bound(int(offset) - 1 if node.attributes["upper"] else int(offset), node.name)


def _add_constant(graph: Graph, value: Value, facts: MaskFacts) -> None:
    sizes = [size for size in value.shape or () if size != 1]
    if value.shape is not None and not sizes:
        return
    try:
        constant = graph.constant(value, LARGEST_MASK)
    except FileNotFoundError:
        # The weights may be missing.
        constant = None
    if constant is None:
        facts.unknown = facts.unknown or value.name
    elif (seen := seen_in(constant)) is None:
        facts.parts.add("bias")
    else:
        _add_pattern(seen, value.name, facts)


def _add_pattern(seen: numpy.ndarray, name: str, facts: MaskFacts) -> None:
    if seen.all() or not seen.any():
        return
    band = band_of(seen)
    if band is None:
        facts.unknown = facts.unknown or name
    else:
        facts.parts.add("causal")
        facts.windows |= {band[0]} if band[0] < seen.shape[-1] else set()


def alibi_operands(graph: Graph, node: Node) -> tuple[numpy.ndarray, Value] | None:
    """Return slopes ``[heads]`` and positions if ``node`` multiplies them."""
    for port in (0, 1) if node.op == "Multiply" else ():
        slopes, positions = graph.look_through(node.source(port), _LAYOUT), node.source(1 - port)
        constant = graph.constant(slopes)
        if constant is not None and constant.size > 1 and max(constant.shape) == constant.size:
            falls = (abs(constant).reshape(-1) > 0).all() and len(set(constant.reshape(-1).tolist())) == constant.size
            if falls and (_holds_positions(graph, positions) or counts_up(graph, positions)):
                return constant.reshape(-1), positions
    return None


def counts_up(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` is a constant ``[.., n]`` that counts up, as in MPT."""
    constant = graph.constant(graph.look_through(value, KEEPS_ORDER), LARGEST_MASK)
    if constant is None or value.shape is None or constant.size < 2 or value.shape[-1:] != (constant.size,):
        return False
    flat = constant.reshape(-1).astype("float64")
    return bool((flat[1:] - flat[:-1] == 1).all())


#: ALiBi as paged attention finds it in a Select.
_EXPOSED = op.Reshape(op.Reshape(op.Multiply(var(), var(), name="product"), ...), ...)


def is_exposed_alibi(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` is ``Reshape(Reshape(Multiply(slopes, .)))``."""
    match = _EXPOSED.match(graph, value)
    product = match.nodes["product"] if isinstance(match, Match) else None
    if product is None or graph.producer(product.source()).op != "Constant":
        return False
    return alibi_operands(graph, product) is not None


def _holds_positions(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` counts positions: a range, or a running sum of ones."""

    def counted(node: Node) -> tuple[Value | None, ...]:
        if node.op in _LAYOUT:
            return node.inputs[:1]
        return node.inputs if node.op in {"Add", "Subtract", "Multiply", "Negative", "Abs", "Select"} else ()

    return any(node.op in {"Range", "CumSum"} for node in graph.backward([value], counted))


def _is_table(graph: Graph, node: Node) -> bool:
    """Return whether ``node`` reads learned position biases; a square may hold a mask instead."""
    if node.op != "Gather" or len(node.inputs) < 2:
        return False
    table = graph.look_through(node.source(), MOVES)
    is_square = len(table.shape or ()) > 1 and fixed_size(table, -1) == fixed_size(table, -2)
    is_looked_up = graph.producer(table).op == "Constant" and graph.producer(node.source(1)).op != "Constant"
    return is_looked_up and not is_square and table.element_type in REALS
