"""Definitions: functions of indices in canonical form, which are equal if their expressions are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import UnknownError
from graphpass.analysis.symbolic.expressions import FALSE, ONE, TRUE, ZERO, Expr, number
from graphpass.analysis.symbolic.nodes import from_polynomial
from graphpass.analysis.symbolic.places import digits
from graphpass.analysis.symbolic.solver import never
from graphpass.verify.structure.algebra import Algebra
from graphpass.verify.structure.conditions import count_of, limited, on_indices, oriented, place_of
from graphpass.verify.structure.definition import Definition
from graphpass.verify.structure.index_variables import digits_of, divisor_of, variables, without_offsets
from graphpass.verify.structure.masks import KnownMasks
from graphpass.verify.structure.selected_places import TruePlaces, is_rank, ranked, ranked_place, without_ranks
from graphpass.verify.structure.signs import SELECTED, is_total, sums_nothing
from graphpass.verify.structure.undefined_rows import UndefinedRows

#: Kinds whose result is linear in the first body.
_LINEAR = frozenset({"recurrence", "sum", "terms"})

#: Kinds that are undefined for an axis without elements.
_EXTREMES = frozenset({"ReduceMax", "ReduceMin"})

#: Kinds that depend on the order of bound indices.
_ORDERED = frozenset({"recurrence", "top"})

#: Kinds that depend on the values of indices and not on their ranges.
_OF_VALUES = frozenset({"level", "sum", "top"})

#: Operators of comparisons of integers, of which a score may have `_MOST_DECIDED`.
_COMPARISONS, _MOST_DECIDED = frozenset({"not_positive", "zero"}), 4

#: Size of the indices of these kinds.
_ANY = ex.length("any")


class Definitions:
    """Creates the definitions of both graphs.

    Attributes:
        algebra: Canonical forms of expressions.
        masks: Effective masks, which are compared by the solver.
        undefined_rows: Masks under which attention of queries without keys is NaN.
        rounded_products: Weights of products whose activations the reference permits kernels to round.
        rows_of_inputs: Least number of rows of the reference's tables that an input is an index of, by its name.
    """

    def __init__(self, algebra: Algebra, masks: KnownMasks) -> None:
        """Create an empty set of definitions, and let ``algebra`` define long sums with it."""
        self.algebra, self.masks, self.undefined_rows = algebra, masks, UndefinedRows()
        self.rounded_products: set[Expr] = set()
        self.rows_of_inputs: dict[str, int] = {}
        algebra.define = self.of_sum
        self._selections: dict[tuple[Expr, ...], TruePlaces] = {}
        self._by_count: dict[Expr, TruePlaces] = {}
        self._lengths: dict[tuple[object, ...], Expr] = {}
        self._sums: dict[Expr, Expr] = {}

    def length(self, key: tuple[object, ...]) -> Expr:
        """Return the length for a key; equal keys of both models have one length."""
        return self._lengths.setdefault(key, ex.length(f"size {len(self._lengths)}"))

    def of_sum(self, expr: Expr) -> Expr:
        """Return an element of a definition of the sum ``expr``, or a multiple of it."""
        if expr not in self._sums:
            self._sums[expr] = self.abstract("terms", (), (expr,), ())
        return self._sums[expr]

    def selection(self, condition: Expr, own: tuple[Expr, ...]) -> TruePlaces:
        """Return the selection of elements at which a condition holds.

        Args:
            condition: See `TruePlaces`; in canonical form.
            own: See `TruePlaces`.
        """
        key = condition, *own
        if key not in self._selections:
            count = ex.length(f"{SELECTED}{len(self._selections)}")
            self._selections[key] = self._by_count[count] = TruePlaces(condition, own, count)
        return self._selections[key]

    def top(self, body: Expr, bound: Expr, parameters: tuple[object, ...]) -> Expr:
        """Return the positions of the largest elements along ``bound``, without their rank.

        Args:
            body: The elements, as an expression of ``bound``.
            bound: The index variable along the axis.
            parameters: Largest rather than smallest, sorted, stable, and the number of results if that matters.

        Returns:
            A read of a definition; the caller appends the rank as its last argument.
        """
        body = ranked(self.algebra.normal(body), bound)
        return self.abstract("top", (*parameters, bound.args[1]), (body,), [bound])

    def are_distinct(self, place: Expr, bound: Expr) -> bool:
        """Return whether ``place`` is proven to differ for any two values of ``bound``.

        Args:
            place: Index that an update writes, as an expression of ``bound``.
            bound: Index variable of the updates.
        """
        if place is bound or is_rank(place, bound):
            return True
        if place.op != "index" or place.args[2:] != (bound,):
            return False
        count, axis = place.args[0]
        return self._by_count[count].is_single(axis)

    def sum_selected(self, body: Expr, bound: Expr) -> Expr:
        """Return the sum of ``body`` over all values of ``bound``.

        A sum over a selection is written as a sum over all elements, with 0 where the condition does not hold.

        Args:
            body: Terms of the sum, as an expression of ``bound``.
            bound: Index variable, which may number the elements of a selection; 0 for a single term.
        """
        selection = self._by_count.get(bound.args[1]) if bound is not ZERO else None
        if selection is None:
            return self.sum(body, bound)
        bounds = {
            selection.place(axis, bound): ex.index(f"s{axis}", index.args[1])
            for axis, index in enumerate(selection.own)
            if index is not ZERO
        }
        body = ex.substitute(self.algebra.normal(body), bounds)
        if ex.contains([body], bound):
            return self.sum(body, bound)
        places = {
            index: bounds[selection.place(axis, bound)] for axis, index in enumerate(selection.own) if index is not ZERO
        }
        return self.sum(ex.choose(ex.substitute(selection.condition, places), body, ZERO), *bounds.values())

    def sum(self, body: Expr, *bounds: Expr) -> Expr:
        """Return the sum of ``body`` over all values of indices.

        Args:
            body: Terms of the sum.
            bounds: Index variables; 0 for a single term.
        """
        bounds = tuple(bound for bound in bounds if bound is not ZERO)
        if len(bounds) == 1:
            body = self.algebra.normal(body)
            count = count_of(body, bounds[0])
            other = self._sum_of_largest(body, bounds[0]) if count is None else count
            if other is not None:
                return other

        def is_apart(condition: Expr) -> bool:
            return not ex.contains([condition], *bounds)

        return self._branches(self.algebra.cases(body, is_apart), bounds, is_apart)

    def _sum_of_largest(self, body: Expr, rank: Expr) -> Expr | None:
        """Return a sum over ranks as a sum over elements; ``None`` if not possible."""
        found = ranked_place([body], rank)
        if found is None:
            return None
        place, size = found
        chosen = ex.index("chosen", size)
        rest = self.algebra.normal(ex.substitute(body, {place: chosen}))
        is_count = body.op == "choose" and body.args[1:] == (ONE, ZERO)
        if is_count or ex.contains([rest], rank):
            return None
        if rank.args[1] is size:
            # The positions of all ranks are a permutation.
            return self._sum_of_digits(rest, chosen)
        times = self.sum(ex.choose(ex.equal(place, chosen), ONE, ZERO), rank)
        return self.sum(self.algebra.times(times, rest), chosen)

    def _sum_of_digits(self, body: Expr, index: Expr) -> Expr:
        """Return a sum over an index, split into quotient and remainder if ``body`` divides it."""
        by = divisor_of(index, [body])
        if by is None:
            return self.sum(body, index)
        parts, places = digits_of(index, *by)
        return self.sum(self.algebra.normal(ex.substitute(body, places)), *parts)

    def _branches(self, body: Expr, bounds: Sequence[Expr], apart: Callable[[Expr], bool]) -> Expr:
        """Return the sum of each case; conditions on other indices remain outside the sum."""
        if not (body.op == "choose" and on_indices(body.args[0]) and apart(body.args[0])):
            return self._sum(body, bounds)
        sides = []
        for branch, holds in zip(body.args[1:], (True, False), strict=True):
            limit = limited(body.args[0], holds)
            if limit is None:
                sides.append(self._branches(branch, bounds, apart))
                continue
            # Parts of joined weights become separate sums, with indices from 0.
            ((index, shifted),) = limit.items()
            result = self._branches(self.algebra.normal(ex.substitute(branch, limit)), bounds, apart)
            if shifted.op != "number":
                inner = next(part for part in ex.walk(shifted) if part.op == "index")
                result = ex.substitute(result, {inner: ex.subtract(index, ex.subtract(shifted, inner))})
            sides.append(result)
        return ex.choose(body.args[0], *sides)

    def _sum(self, body: Expr, bounds: Sequence[Expr]) -> Expr:
        """Return the sum of one case; factors without bound indices remain outside the sum."""
        parted = self._parted(body, bounds)
        if parted is not None:
            return parted
        factors = body.args if body.op == "times" else (body,)
        inside = [factor for factor in factors if ex.contains([factor], *bounds)]
        outside = [factor for factor in factors if factor not in inside]
        kept = [bound for bound in bounds if ex.contains(inside, bound)]
        outside += [bound.args[1] for bound in bounds if bound not in kept]
        if not inside:
            return self.algebra.times(*outside)
        summed = self.abstract("sum", (), (self.algebra.times(*inside),), kept)
        return self.algebra.times(*outside, summed)

    def _parted(self, body: Expr, bounds: Sequence[Expr]) -> Expr | None:
        """Return a sum split by a condition on one bound index; ``None`` without one."""
        for part in ex.walk(body) if ex.uses([body], "choose") else ():
            condition = oriented(part.args[0]) if part.op == "choose" and on_indices(part.args[0]) else None
            own = [index for index in bounds if condition is not None and ex.contains([condition], index)]
            if condition is None or len(own) != 1:
                continue
            others, place = [index for index in bounds if index is not own[0]], place_of(condition, own[0])
            limits = limited(condition, True), limited(condition, False)
            is_part_of_stack = all(limits) and any(limit and limit[own[0]].op == "number" for limit in limits)
            if place is None and not is_part_of_stack:
                continue
            split = self.algebra.cases(body, {condition}.__contains__)
            if split.op != "choose" or split.args[0] is not condition:
                continue
            if place is not None:
                sides = [(split.args[1], {own[0]: place}, others), (split.args[2], {}, bounds)]
                less = self.sum(ex.substitute(split.args[2], {own[0]: place}), *others)
            else:
                sides = [
                    (side, limit, [*others, *(index for index in ex.walk(limit[own[0]]) if index.op == "index")])
                    for side, limit in zip(split.args[1:], limits, strict=True)
                    if limit
                ]
                less = ZERO
            terms = [self.sum(self._at(side, limit), *rest) for side, limit, rest in sides]
            return self.algebra.normal(ex.add(*terms, ex.negative(less)))
        return None

    def _at(self, expr: Expr, places: Mapping[Expr, Expr]) -> Expr:
        """Return an expression with substituted indices.

        Sums whose arguments become numbers are computed again for these numbers.
        """
        expr, known = ex.substitute(expr, places), dict[Expr, Expr]()
        if not any(place.op == "number" for place in places.values()):
            return expr
        for part in ex.walk(expr):
            if part.op != "read" or not isinstance(part.args[0], Definition) or part.args[0].kind != "sum":
                continue
            numbers = {place: argument for place, argument in enumerate(part.args[1:]) if argument.op == "number"}
            if not numbers:
                continue
            (body,), names = part.args[0].bodies, {f"v{place}": argument for place, argument in numbers.items()}
            own = {index.args[0]: index for index in variables([body])}
            body = self._at(body, {own[name]: argument for name, argument in names.items()})
            rest = {own[f"v{place}"]: argument for place, argument in enumerate(part.args[1:]) if place not in numbers}
            bounds = [index for name, index in own.items() if name.startswith("r")]
            known[part] = ex.substitute(self.sum(self.algebra.normal(body), *bounds), rest)
        return ex.substitute(expr, known)

    def softmax(self, visible: Expr, score: Expr, along: Expr) -> Expr:
        """Return the softmax of ``score`` at the key ``along``.

        Args:
            visible: Condition under which a key takes part, such as the effective mask.
            score: Score of a key.
            along: Index variable of the key, in both expressions; 0 if there is one key.

        Raises:
            UnknownError: All scores are equal, and the mask may hide all keys.
        """
        score = _where_visible(visible, self.algebra.normal(score), along)
        terms = score.args if (score := self.algebra.normal(score)).op == "real_sum" else (score,)
        # Softmax does not depend on a term that is equal for all keys.
        terms = tuple(_along(term, along) for term in terms)
        score = ex.add(ZERO, *(term for term in terms if ex.contains([term], along) or not is_total(term)))
        score = self.algebra.cases(score)
        if along.op != "index" or not ex.contains([score, visible], along):
            if visible is not TRUE or not is_total(score):
                raise UnknownError("softmax of equal scores that may be undefined, or with a mask that may hide all")
            return self.algebra.power(along.args[1] if along.op == "index" else ONE, -1.0)
        if visible is TRUE and along.args[1].as_number is not None:
            # Written as exp(score) / sum, ratios of results reduce to ratios of exponentials.
            exponent = ex.apply("exp", (score,))
            return self.algebra.times(exponent, self.algebra.power(self.sum(exponent, along), -1.0))
        return self.abstract("softmax", (), (score, visible), [along], reads_bound=True)

    def abstract(
        self,
        kind: str,
        parameters: tuple[Any, ...],
        bodies: Sequence[Expr],
        bounds: Sequence[Expr],
        *,
        reads_bound: bool = False,
    ) -> Expr:
        """Return the element of a new definition at the free indices of its bodies.

        Args:
            kind: See `Definition`.
            parameters: See `Definition`.
            bodies: Expressions of free and bound indices.
            bounds: Indices that the function binds, such as those of a sum.
            reads_bound: Whether the result also depends on the bound indices, as a softmax does on the key.
        """
        # Cases may decide quotients and remainders, by which indices would be split.
        divides = [ex.uses([body], "floor_quotient", "modulo") for body in bodies]
        bodies = [self.algebra.cases(body) if own else body for body, own in zip(bodies, divides, strict=True)]
        bodies, bounds, arguments = self._split(kind, bodies, bounds)
        bodies, places_of_ranks = without_ranks(bodies, bounds)
        arguments |= {index: ex.substitute(place, arguments) for index, place in places_of_ranks.items()}
        if places_of_ranks:
            bodies, bounds, parts = self._split(kind, bodies, bounds)
            arguments |= {index: ex.substitute(place, arguments) for index, place in parts.items()}
        # Impossible cases would add their indices to the order. Applied twice, because conditions that a case decides
        # may leave others with fewer indices.
        bodies = [self.algebra.cases(self.algebra.cases(body)) for body in bodies]
        sizes = dict[Expr, Expr]()
        if kind in _OF_VALUES:
            bodies, moved, sizes = without_offsets(bodies, bounds)
            arguments |= {index: ex.substitute(place, arguments) for index, place in moved.items()}
        order = variables(bodies[:1], sizes)
        order += [index for index in variables(bodies, sizes) if index not in order]
        places, indices = dict[Expr, Expr](), list[Expr]()
        for letter, group in (("v", [index for index in order if index not in bounds]), ("r", bounds)):
            for place, index in enumerate(sorted(group, key=order.index)):
                size = _ANY if kind in _OF_VALUES and letter == "v" else index.args[1]
                places[index] = ex.index(f"{letter}{place}", size)
                if letter == "v" or reads_bound:
                    indices.append(arguments.get(index, index))
        renamed = tuple(self.algebra.cases(ex.substitute(body, places)) for body in bodies)
        if kind == "softmax" and len(bounds) == 1:
            renamed = (renamed[0], self.masks.known(renamed[1], places[bounds[0]]))
        outside = 1.0
        if kind in _LINEAR and (outside := self.algebra.leading(renamed[0])) != 1:
            renamed = (self.algebra.scaled(renamed[0], 1 / outside), *renamed[1:])
        is_partial = not all(map(is_total, renamed)) or (kind in _EXTREMES and any(map(sums_nothing, renamed)))
        result = ex.read(Definition(kind, parameters, renamed, is_partial), indices, "real")
        return result if outside == 1 else self.algebra.times(number(outside), result)

    def _split(
        self, kind: str, bodies: Sequence[Expr], bounds: Sequence[Expr]
    ) -> tuple[Sequence[Expr], list[Expr], dict[Expr, Expr]]:
        """Split each index that bodies divide by a size into quotient and remainder.

        A bound index remains whole if the function depends on its order, or if the bodies do not read both parts: a
        sum then has each term several times.

        Returns:
            The bodies, the bound indices, and the expression that each new index replaces.
        """
        bounds, arguments = list(bounds), dict[Expr, Expr]()
        pending = variables(bodies)
        while pending:
            index = pending.pop()
            by = divisor_of(index, bodies)
            if by is None:
                continue
            divisor, count = by
            parts, places = digits_of(index, divisor, count)
            split = [self.algebra.normal(ex.substitute(body, places)) for body in bodies]
            if index in bounds and (kind in _ORDERED or not all(ex.contains(split, part) for part in parts)):
                continue
            bodies = split
            arguments |= zip(parts, digits(arguments.pop(index, index), divisor), strict=True)
            if index in bounds:
                place = bounds.index(index)
                bounds[place : place + 1] = parts
            pending += parts
        return bodies, [index for index in bounds if ex.contains(bodies, index)], arguments


def _where_visible(visible: Expr, score: Expr, along: Expr) -> Expr:
    """Return a score without choices that the mask decides.

    Scores of hidden keys have no effect.
    """
    choices = (part.args[0] for part in ex.walk(score) if part.op == "choose" and ex.contains([part.args[0]], along))
    conditions = list(dict.fromkeys(condition for condition in choices if condition.op in _COMPARISONS))
    if visible is TRUE or not 0 < len(conditions) <= _MOST_DECIDED or not is_total(score):
        return score
    decided: dict[Expr, Expr] = {}
    for condition in conditions:
        if never(visible, condition):
            decided[condition] = FALSE
        elif never(visible, ex.negate(condition)):
            decided[condition] = TRUE
    return ex.substitute(score, decided) if decided else score


def _along(term: Expr, along: Expr) -> Expr:
    """Return a term of a score without the part that is equal for all keys.

    A slope times a distance becomes the slope times the position of the key.
    """
    own = [factor for factor in term.args if ex.contains([factor], along)] if term.op == "times" else []
    if len(own) != 1 or own[0].op != "sum" or not is_total(term):
        return term
    moving = {monomial: factor for monomial, factor in ex.polynomial(own[0]).items() if ex.contains(monomial, along)}
    return ex.substitute(term, {own[0]: from_polynomial(moving)})
