"""Symbolic definition of Softmax, whose masked scores have weight 0."""

from __future__ import annotations

from functools import reduce

from graphpass.analysis.attention.added_masks import hides, is_infinite, shown
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, TRUE, ZERO, Expr
from graphpass.ir.values import MASKED_BELOW
from graphpass.verify.structure.attention import gate_sink, share_of
from graphpass.verify.structure.tensors import DefinedTensors, closed, definitions_of


@closed
def _softmax(element: Element) -> Steps:
    if "flattens" in element.node.attributes:
        raise UnknownError("it covers several axes, as Softmax of opsets before 13")
    axis = element.node.attributes.get("axis", -1) % len(element.index)
    along = element.index[axis]
    body = yield element.node.source(), element.index
    if along is ZERO:
        return ex.add(ONE, ex.multiply(ZERO, body))
    definitions, tensors = definitions_of(element), element.elements
    assert isinstance(tensors, DefinedTensors)
    body = definitions.algebra.normal(body)
    visible, score = split_mask(body)
    if element.node.index not in tensors.guarded:
        infinite = is_infinite(body)
        finite = visible if infinite is None else ex.negate(infinite)
        tensors.hide_by_infinity(finite, element.index[axis - 1], along)
    sink = yield from gate_sink(element)
    return share_of(definitions, visible, score, along, sink)


def split_mask(body: Expr) -> tuple[Expr, Expr]:
    """Return the condition under which a score is visible, and the score without mask."""
    body = _without_floor(body)
    terms = map(_of_constants, body.args if body.op == "real_sum" else (body,))
    visible, kept = TRUE, []
    for term in terms:
        if term.op == "choose":
            condition, then, otherwise = term.args
            low = [_is_masked(branch) for branch in (then, otherwise)]
            if any(low) and not all(low):
                visible = ex.conjunction(visible, ex.negate(condition) if low[0] else condition)
                kept.append(otherwise if low[0] else then)
                continue
        if ex.uses([term], "choose"):
            visible = ex.conjunction(visible, ex.negate(hides(term)))
            term = shown(term)
        kept.append(term)
    again = reduce(ex.add, kept)
    if again is not body and any(term.op == "choose" for term in kept):
        further, again = split_mask(again)
        visible = ex.conjunction(visible, further)
    return visible, again


def _of_constants(term: Expr) -> Expr:
    """Return a multiple of a choice between constants as a choice between multiples.

    Models that mask scores before they scale them have such multiples.
    """
    scaled = ex.multiply(*term.args) if term.op == "times" and len(term.args) == 2 else term
    return scaled if scaled.op == "choose" else term


def _without_floor(score: Expr) -> Expr:
    """Return the score of ``maximum(score, lowest)``; a masked score remains masked without this floor."""
    while score.op == "choose" and score.args[0].op == "at_most":
        condition, then, otherwise = score.args
        # Only this order of operands is a maximum; a minimum with the floor would mask every key.
        if condition.args != (otherwise, then) or _is_masked(then) == _is_masked(otherwise):
            break
        score = otherwise if _is_masked(then) else then
    return score


def _is_masked(branch: Expr) -> bool:
    value = branch.as_number
    return value is not None and value < MASKED_BELOW


# Moves


RULES: dict[str, Rule] = {"Softmax": _softmax}
