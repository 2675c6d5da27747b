"""Positions of elements that TopK and NonZero select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import ZERO, Expr
from graphpass.verify.structure.definition import Definition
from graphpass.verify.structure.index_variables import variables
from graphpass.verify.structure.signs import is_positive, is_total


@dataclass(frozen=True, slots=True)
class TruePlaces:
    """The elements of a tensor at which a condition holds, in the order of NonZero.

    Attributes:
        condition: The condition, as an expression of ``own``.
        own: An index variable for each axis; 0 for an axis of size 1.
        count: Number of selected elements.
    """

    condition: Expr
    own: tuple[Expr, ...]
    count: Expr

    def place(self, axis: int, number_of: Expr) -> Expr:
        """Return the index of a selected element along an axis, as a new index variable.

        Args:
            axis: Axis of the tensor.
            number_of: Number of the element in the order of NonZero.
        """
        own = self.own[axis]
        return own if own is ZERO else ex.index((self.count, axis), own.args[1], number_of)

    def is_single(self, axis: int) -> bool:
        """Return whether at most one element is selected for each index along ``axis``."""
        others = [index for place, index in enumerate(self.own) if place != axis and index is not ZERO]
        conditions = self.condition.args if self.condition.op == "and" else (self.condition,)
        return not others or (len(others) == 1 and any(_is_met_once(condition, others[0]) for condition in conditions))


def ranked(body: Expr, bound: Expr) -> Expr:
    """Return an expression with the same order along ``bound``.

    Positive factors, ``exp``, and terms that do not depend on ``bound`` are removed.

    Args:
        body: The expression, in canonical form.
        bound: Index variable along the axis to order.
    """

    def is_offset(term: Expr) -> bool:
        return not ex.contains([term], bound) and is_total(term)

    while True:
        factors = body.args if body.op == "times" else (body,)
        own = [factor for factor in factors if ex.contains([factor], bound)]
        others = [factor for factor in factors if factor not in own]
        if len(own) != 1 or not all(is_positive(factor) and is_total(factor) for factor in others):
            return body
        (body,) = own
        if body.op == "apply" and body.args[0] == "exp":
            body = body.args[1]
        elif body.op == "real_sum" and any(map(is_offset, body.args)):
            body = ex.add(*(term for term in body.args if not is_offset(term)))
        elif not others:
            return body


def _is_met_once(condition: Expr, index: Expr) -> bool:
    """Return whether a condition holds for at most one value of ``index``.

    This is proven for an equation of the position of the ``index``-th largest element, since these positions differ.
    """
    if condition.op != "zero":
        return False
    terms = ex.polynomial(condition.args[0])
    ranked = [monomial for monomial in terms if len(monomial) == 1 and is_rank(monomial[0], index)]
    rest = [atom for monomial in terms if monomial not in ranked for atom in monomial]
    return len(ranked) == 1 and not ex.contains(rest, index)


def is_rank(place: Expr, index: Expr) -> bool:
    """Return whether ``place`` is the position of the ``index``-th largest element.

    Args:
        place: Index into an axis.
        index: Index variable of the rank.
    """
    return _is_top(place) and place.args[-1] is index and not ex.contains(place.args[1:-1], index)


def _is_top(place: Expr) -> bool:
    return place.op == "read" and isinstance(place.args[0], Definition) and place.args[0].kind == "top"


def without_ranks(bodies: Sequence[Expr], bounds: Sequence[Expr]) -> tuple[Sequence[Expr], dict[Expr, Expr]]:
    """Rewrite bodies that use a rank only to read the position of its element.

    Args:
        bodies: The expressions.
        bounds: Index variables to leave as they are.

    Returns:
        The bodies with an index in place of this position, and the position by new index.
    """
    arguments = dict[Expr, Expr]()
    if not any(map(_is_top, ex.walk(*bodies))):
        return bodies, arguments
    for rank in variables(bodies):
        ranked = ranked_place(bodies, rank) if rank not in bounds else None
        if ranked is None or ex.contains(ranked[:1], *bounds):
            continue
        place, chosen = ranked[0], ex.index(f"chosen {len(arguments)}", ranked[1])
        swapped = [ex.substitute(body, {place: chosen}) for body in bodies]
        if not ex.contains(swapped, rank):
            bodies, arguments[chosen] = swapped, place
    return bodies, arguments


def ranked_place(bodies: Sequence[Expr], rank: Expr) -> tuple[Expr, Expr] | None:
    """Return position of the ``rank``-th largest element and number of elements, if unambiguous.

    Args:
        bodies: The expressions that read the position.
        rank: Index variable of the rank.
    """
    places = {part for part in ex.walk(*bodies) if is_rank(part, rank)}
    if len(places) != 1:
        return None
    (place,) = places
    return place, place.args[0].values
