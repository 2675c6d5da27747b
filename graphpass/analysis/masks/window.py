"""Read sliding-window masks: the window's comparison and the conditions beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from graphpass.analysis.masks.comparisons import Comparison, compared_positions
from graphpass.analysis.masks.facts import added_terms, mask_facts
from graphpass.ir.constants import fold_scalar
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import ANDS, ARITHMETIC, EXTREMA, NOTS, ORS, SHAPE_READERS, SOURCES
from graphpass.ir.values import MASKED, MASKED_BELOW, REALS


@dataclass(frozen=True)
class Condition:
    """A condition or its negation; of a mask of numbers, that it masks nothing."""

    value: Value
    holds: bool

    def compares(self, graph: Graph) -> Comparison | None:
        """Read it as a comparison of positions."""
        return compared_positions(graph, self.value, holds=self.holds)


@dataclass(frozen=True)
class WindowMask:
    """Parts of a sliding-window mask.

    Attributes:
        window: Number of positions that a query sees, itself included.
        others: The other conditions, outermost first.
        shape: Target of the condition's broadcast, if any.
        bounds: Start, stop, step and axes of the Slice on the way, if any.
        kept: Number added if the condition holds; ``masked`` elsewhere.
    """

    keys: Value
    queries: Value
    window: int
    others: tuple[Condition, ...]
    shape: Value | None
    bounds: tuple[Value, ...]
    kept: float
    masked: float
    element_type: str


def read_mask(graph: Graph, mask: Value | None, element_type: str) -> WindowMask | None:
    """Read a mask that is a condition with a window, or selects by one.

    It selects between constants. All other terms of a sum have to mask and nothing more.

    Args:
        graph: The graph.
        mask: Mask of numbers, or of booleans that keep scores.
        element_type: Type of the scores.
    """
    terms = added_terms(graph, mask)[::-1] if mask is not None else []
    for number, term in enumerate(terms):
        found = _read_term(graph, term, element_type)
        others = [*terms[:number], *terms[number + 1 :]]
        if found is None or (others and found.bounds) or not all(_only_masks(graph, other) for other in others):
            continue
        conditions = tuple(Condition(_padding(graph, found, other) or other, holds=True) for other in others)
        return dataclasses.replace(found, others=(*found.others, *conditions))
    return None


def _padding(graph: Graph, window: WindowMask, mask: Value) -> Value | None:
    """Return input attention_mask if ``mask`` hides no more than that and the causal condition.

    NPUW takes a causal condition beside that of the window for a contradiction (detect_causal_mask.cpp).
    """
    if not mask_facts(graph, mask).parts <= {"causal", "input"}:
        return None
    upstream = graph.backward([mask], lambda node: () if node.op in SHAPE_READERS else node.inputs)
    inputs = [node for node in upstream if node.op in SOURCES]
    compared = [other.compares(graph) for other in window.others]
    is_causal = any(one is not None and one.bound == 0 and one.is_negated for one in compared)
    if not is_causal or [node.name for node in inputs] != ["attention_mask"]:
        return None
    padding = inputs[0].outputs[0]
    return padding if padding.rank == 2 and padding.element_type not in REALS else None


def _only_masks(graph: Graph, mask: Value) -> bool:
    facts = mask_facts(graph, mask)
    if facts.unknown is not None or facts.parts & {"alibi", "bias"}:
        return False
    for node in graph.backward([mask], _numbers_of):
        held = node.outputs[0] if node.op in {"Constant", "Parameter"} else None
        if held is not None and held.element_type in REALS:
            number = fold_scalar(graph, held)
            if number is None or (number not in {0, 1} and number > MASKED_BELOW):
                return False
    return True


def _numbers_of(node: Node) -> Iterable[Value | None]:
    if node.op == "Select":
        return node.inputs[1:]
    if node.op == "ScatterNDUpdate":
        return (node.inputs[0], node.inputs[2])
    return node.inputs if node.op in ARITHMETIC | EXTREMA else node.inputs[:1]


def _read_term(graph: Graph, mask: Value, element_type: str) -> WindowMask | None:
    bounds: tuple[Value, ...] = ()
    shape: Value | None = None
    values = [0.0, MASKED] if mask.element_type == "boolean" else []
    lowest = float("-inf")
    value = mask
    while True:
        node = graph.producer(value)
        given = [operand for operand in node.inputs if operand is not None]
        if node.op == "Slice" and len(given) == 5 and not bounds and shape is None:
            bounds = tuple(given[1:])
        elif node.op == "Broadcast" and shape is None and len(given) == 2:
            shape = given[1]
        elif node.op == "Maximum" and not values and (limit := fold_scalar(graph, given[1])) is not None:
            lowest = max(lowest, limit)
        elif node.op == "Select" and not values:
            numbers = [fold_scalar(graph, operand) for operand in given[1:]]
            values = [max(number, lowest) for number in numbers if number is not None]
            if len(values) != 2 or max(values) < 0 or min(values) > MASKED_BELOW:
                return None
        elif node.op != "Convert" or (values and given[0].element_type != value.element_type):
            break
        value = given[0]
    if not values:
        return None
    terms = _terms(graph, value, values[0] > values[1])
    for number, term in enumerate(terms):
        found = term.compares(graph)
        if found is not None and not found.is_negated and found.bound < 0:
            others = (*terms[:number], *terms[number + 1 :])
            extremes = (max(values), min(values), element_type)
            return WindowMask(found.keys, found.queries, -found.bound, others, shape, bounds, *extremes)
    return None


def _terms(graph: Graph, condition: Value, holds: bool) -> list[Condition]:
    """Return the conditions that ``condition`` or its negation joins by And, except true constants."""
    terms: list[Condition] = []
    pending = [Condition(condition, holds)]
    while pending:
        term = pending.pop()
        node = graph.producer(term.value)
        if node.op in (ANDS if term.holds else ORS):
            pending += [Condition(operand, term.holds) for operand in node.inputs if operand is not None]
        elif node.op in NOTS:
            pending.append(Condition(node.source(), not term.holds))
        elif node.op == "Convert" and node.source().element_type == term.value.element_type:
            pending.append(Condition(node.source(), term.holds))
        elif fold_scalar(graph, term.value) != float(term.holds):
            terms.append(term)
    return terms
