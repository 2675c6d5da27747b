"""Canonical form of real expressions: sums of products of powers, with case distinctions outermost.

Factors and terms are collected and sorted, so that ``x / sqrt(y)``, ``x * y ** -0.5`` and ``(-x) * (-1 / sqrt(y))`` are
one expression.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.nodes import from_polynomial
from graphpass.analysis.symbolic.places import digits
from graphpass.verify.structure.angles import AngleTables
from graphpass.verify.structure.conditions import (
    condition_order,
    count_cases,
    decide,
    limited,
    on_indices,
    oriented,
    parted,
    without_digits,
)
from graphpass.verify.structure.signs import is_total, least_sign, reads_infinity

#: Relative difference up to which constants are equal: exporters compute scales in f32 or f64.
_ROUNDING = 1e-6

#: Largest finite f32.
LARGEST = float(numpy.finfo(numpy.float32).max)

#: Maximum number of conditions that are moved outermost.
_MOST_CONDITIONS = 48

#: Longer sums become definitions where they are factors or bases, which keeps the work linear in experts and layers.
_MOST_TERMS = 8

#: Maximum exponent of a power that is written as a product.
_MOST_FACTORS = 64

#: Maximum number of cases of an expression whose conditions are moved outermost.
_MOST_CASES = 48


def _counts(expr: Expr) -> bool:
    """Return whether an expression, such as an angle, depends on positions."""
    pending, seen = [expr], {expr}
    while pending:
        part = pending.pop()
        if part.op == "read":
            if part.sort == "int" and isinstance(part.args[0], str):
                return True
        elif part.op in {"index", "length", "running_sum"}:
            return True
        elif part.op != "apply" or part.args[0] not in {"cos", "sin"}:
            operands = {operand for operand in part.operands if operand.sort != "bool"} - seen
            seen |= operands
            pending += operands
    return False


class TooLargeError(Exception):
    """Raised if a comparison rewrites more expressions than its limit."""


class Algebra:
    """Canonical forms of expressions, each computed once.

    Attributes:
        angles: Frequencies of the angles in rewritten expressions.
        neutral: Rounding functions that are ignored, except on positions, which are not exact above 2048 in f16 or 256
            in bf16.
        define: Returns an element of a new definition of a long sum, or a multiple of it.
        related: Tables of which at least a part is written as a multiple of another table, or the other way around.
    """

    def __init__(self, angles: AngleTables, limit: int, neutral: Iterable[str] = ()) -> None:
        """Create an algebra without known forms.

        Args:
            angles: Collects the frequencies of angles.
            limit: Most expressions that are rewritten.
            neutral: Names of rounding functions that are ignored.
        """
        self._left = limit
        self.angles = angles
        self.neutral = frozenset(neutral)
        self.define: Callable[[Expr], Expr] = lambda long: long
        self._known: dict[Expr, Expr] = {}
        self._numbers: list[float] = []
        self.related = set[Table]()
        self._tables: dict[tuple[int, ...], list[Table]] = {}
        self._wholes: dict[Table, Table] = {}

    def normal(self, root: Expr) -> Expr:
        """Return the canonical form of ``root``.

        Raises:
            TooLargeError: The limit of rewritten expressions is exceeded.
        """
        if root in self._known:
            return self._known[root]
        for part in ex.walk(root, known=self._known):
            self._left -= 1
            if self._left < 0:
                raise TooLargeError
            result = self._rewritten(part)
            self._known[part] = result
            self._known.setdefault(result, result)
        return self._known[root]

    def _rewritten(self, part: Expr) -> Expr:
        operands = part.operands
        known = {operand: self._known[operand] for operand in operands}
        if part.op == "number":
            return self._snapped(part)
        if _is_variable(part):
            # A variable: with another form of its size it would be another.
            return part
        if reads_table(part):
            return self._scaled_table(part.args[0], [known[place] for place in part.args[1:]])
        if part.op == "apply" and part.args[0] in self.neutral and not _counts(known[part.args[1]]):
            return known[part.args[1]]
        is_real = part.sort == "real" or any(operand.sort == "real" for operand in known.values())
        if part.sort == "real" and part.op in {"product", "quotient", "times", "raise"}:
            return self._product(part, known)
        if part.op == "apply" and part.args[0] == "vanish":
            return self.times(ZERO, *(known[operand] for operand in operands))
        if part.op == "apply" and part.args[0] in {"cos", "sin"}:
            self.angles.note(known[part.args[1]])
        if part.op == "apply" and part.args[0] in {"sqrt", "power"} and is_real:
            return self._power(part, known)
        if part.op in {"floor_quotient", "modulo"}:
            return digits(*(known[arg] for arg in part.args))[part.op == "modulo"]
        if part.op == "sum" and any(atom.op == "floor_quotient" for atom in operands):
            return _regrouped(ex.rebuild(part, known))
        if part.op == "not_positive":
            return without_digits(ex.rebuild(part, known))
        if part.op == "real_sum":
            return self._sum([known[term] for term in part.args])
        if part.op == "compared" and all(map(is_total, known.values())):
            return ex.as_defined(ex.make("compared", (part.args[0], *(known[arg] for arg in part.args[1:])), "bool"))
        same = all(known[operand] is operand for operand in operands)
        result = part if same else ex.rebuild(part, known)
        if result.op == "choose" and result.sort == "real":
            result = self._magnitude(result)
            result = _extreme(result) if result.op == "choose" else result
        return self._with_indicators(result) if result.op == "choose" and result.sort == "real" else result

    def _magnitude(self, choice: Expr) -> Expr:
        """Return ``x`` or ``-x`` for the extreme of both, if a sign is known."""
        condition: Expr = choice.args[0]
        then, otherwise = pair = choice.args[1:]
        if condition.op != "at_most" or {*condition.args} != {*pair} or otherwise is not self.scaled(then, -1.0):
            return choice
        is_larger = condition.args == (otherwise, then)
        known = [(own, other) for own, other in (pair, pair[::-1]) if least_sign(own) is not None]
        return known[0][not is_larger] if known else choice

    def _with_indicators(self, choice: Expr) -> Expr:
        """Return ``condition ? x : 0`` as a product of ``x`` with indicators of conditions on data."""
        condition, then, otherwise = choice.args
        if then is ZERO:
            condition, then, otherwise = ex.negate(condition), otherwise, then
        if otherwise is not ZERO or then.op == "number" or not is_total(then):
            return choice
        parts = condition.args if condition.op == "and" else (condition,)
        of_data = [ex.choose(part, ONE, ZERO) for part in parts if not on_indices(part)]
        kept = ex.conjunction(*(part for part in parts if on_indices(part)))
        return ex.choose(kept, self.times(*of_data, then), ZERO) if of_data else choice

    def _snapped(self, part: Expr) -> Expr:
        """Return the earlier constant or integer that ``part`` equals up to rounding; otherwise ``part``."""
        value = part.args[0]
        if part.sort != "real" or not math.isfinite(value):
            return part
        place = bisect_left(self._numbers, value)
        for near in self._numbers[max(place - 1, 0) : place + 1]:
            if math.isclose(near, value, rel_tol=_ROUNDING):
                return number(near)
        if abs(value) < 1e12 and math.isclose(value, round(value), rel_tol=_ROUNDING):
            return number(round(value))
        insort(self._numbers, value)
        return part

    def _scaled_table(self, table: Table, places: Sequence[Expr]) -> Expr:
        """Return an element of a table as a multiple of the first proportional table.

        If the index covers only some columns, the table is cut to them.
        """
        whole = table
        table, places = _part_of(table, places)
        elements = numpy.asarray(table.elements, numpy.float64)
        lead = float(elements.flat[numpy.abs(elements).argmax()])
        if not numpy.isfinite(elements).all() or lead == 0:
            return ex.read(table, places, "real")
        known = self._tables.setdefault(elements.shape, [])
        for earlier in known:
            first = numpy.asarray(earlier.elements, numpy.float64)
            factor = lead / float(first.flat[numpy.abs(elements).argmax()] or numpy.nan)
            if numpy.allclose(elements, factor * first, rtol=_ROUNDING, atol=0.0):
                if earlier != table:
                    self.related |= {whole, self._wholes[earlier]}
                return self.times(self._snapped(number(factor)), ex.read(earlier, places, "real"))
        known.append(table)
        self._wholes[table] = whole
        return ex.read(table, places, "real")

    def _product(self, part: Expr, known: dict[Expr, Expr]) -> Expr:
        if part.op == "quotient":
            return self.times(known[part.args[0]], self.power(known[part.args[1]], -1.0))
        if part.op == "raise":
            return self.power(known[part.args[0]], part.args[1])
        return self.times(*(known[factor] for factor in part.args))

    def _power(self, part: Expr, known: dict[Expr, Expr]) -> Expr:
        base = known[part.args[1]]
        exponent = 0.5 if part.args[0] == "sqrt" else known[part.args[2]].as_number
        if exponent is None:
            return ex.apply("power", (base, known[part.args[2]]))
        return self.power(base, float(exponent))

    def power(self, base: Expr, exponent: float) -> Expr:
        """Return ``base ** exponent`` in canonical form.

        Args:
            base: Expression in canonical form.
            exponent: Real number; -1 for a reciprocal, 0.5 for a square root.
        """
        value = base.as_number
        if value is not None and (value > 0 or (value and float(exponent).is_integer())):
            return self._snapped(number(float(value) ** exponent))
        if exponent == 1:
            return base
        if base.op == "real_sum" and (lead := self.leading(base)) != 1 and (lead > 0 or exponent.is_integer()):
            return self.times(number(lead**exponent), self.power(self.scaled(base, 1 / lead), exponent))
        if base.op == "raise" and _is_one_power(base.args[0], base.args[1], float(exponent)):
            return self.power(base.args[0], base.args[1] * exponent)
        if base.op == "raise" and float(exponent).is_integer() and 0 < exponent <= _MOST_FACTORS:
            return self.times(*[base] * int(exponent))
        if base.op == "times" and float(exponent).is_integer():
            return self.times(*(self.power(factor, exponent) for factor in base.args))
        factor, short = self._short(base, [float(exponent)])
        power = ex.make("raise", (short, float(exponent)), "real")
        return power if factor == 1 else self.times(number(factor**exponent), power)

    def _short(self, base: Expr, exponents: Sequence[float]) -> tuple[float, Expr]:
        """Return a factor and a base; an element of a definition replaces a long sum.

        Args:
            base: The sum, or another base, which is returned with factor 1.
            exponents: Exponents of the base. A negative factor of a root stays part of the base.
        """
        if base.op != "real_sum" or len(base.args) <= _MOST_TERMS:
            return 1.0, base
        defined = self.define(base)
        if defined.op != "times":
            return 1.0, defined
        factor, *rest = defined.args
        is_apart = factor.args[0] > 0 or all(exponent.is_integer() for exponent in exponents)
        return (float(factor.args[0]), rest[0]) if is_apart else (1.0, defined)

    def times(self, *factors: Expr) -> Expr:
        """Return the canonical product: one coefficient, and one power of each base.

        A product with 0 is 0 only where its other factors are defined, which the function ``vanish`` of them expresses.
        """
        coefficient, powers = 1.0, dict[Expr, list[float]]()
        pending = list(factors)
        while pending:
            factor = pending.pop()
            value = factor.as_number
            if value is not None:
                coefficient *= float(value)
            elif factor.op == "times":
                pending += factor.args
            elif factor.op == "apply" and factor.args[0] == "vanish":
                coefficient *= 0.0
                pending += factor.args[1:]
            elif factor.op == "real_sum" and (lead := self.leading(factor)) != 1:
                coefficient *= lead
                pending.append(self.scaled(factor, 1 / lead))
            elif factor.op == "raise":
                powers.setdefault(factor.args[0], []).append(factor.args[1])
            elif factor.sort == "bool":
                pending.append(ex.choose(factor, ONE, ZERO))
            elif factor.op == "choose" and factor.args[1:] == (ONE, ZERO):
                powers[factor] = [exponent for exponent in powers.get(factor, []) if exponent != 1] + [1.0]
            else:
                powers.setdefault(factor, []).append(1.0)
        if len(powers) > 1 or any(exponents != [1.0] for exponents in powers.values()):
            coefficient, powers = self._with_short_bases(coefficient, powers)
        kept = [
            base if exponent == 1 else ex.make("raise", (base, exponent), "real")
            for base, exponents in powers.items()
            for exponent in _joined(base, exponents)
            if exponent
        ]
        if coefficient == 0:
            partial = [factor for factor in kept if not is_total(factor)]
            return ex.apply("vanish", sorted(partial, key=lambda factor: factor.order)) if partial else ZERO
        constant = self._snapped(number(coefficient))
        if not kept:
            return constant
        if len(kept) == 1 and constant is not ONE and kept[0].op == "real_sum":
            return self._sum([self.times(constant, term) for term in kept[0].args])
        if len(kept) == 1 and constant is ONE:
            return kept[0]
        return ex.make("times", (constant, *sorted(kept, key=lambda factor: factor.order)), "real")

    def _with_short_bases(
        self, coefficient: float, powers: Mapping[Expr, list[float]]
    ) -> tuple[float, dict[Expr, list[float]]]:
        """Return coefficient and exponents by base, of which elements of definitions replace long sums."""
        shorter: dict[Expr, list[float]] = {}
        for base, exponents in powers.items():
            factor, short = self._short(base, exponents)
            coefficient *= factor ** sum(exponents)
            shorter.setdefault(short, []).extend(exponents)
        return coefficient, shorter

    def leading(self, expr: Expr) -> float:
        """Return the coefficient of the first term, in the first case with a term."""
        while expr.op == "choose":
            expr = expr.args[1] if expr.args[1].as_number is None else expr.args[2]
        if expr.op == "real_sum":
            expr = min((term for term in expr.args if term.op != "number"), key=lambda term: self._rest(term).order)
        return float(expr.args[0].args[0]) if expr.op == "times" else 1.0

    def _rest(self, term: Expr) -> Expr:
        """Return a canonical term without its coefficient."""
        if term.op != "times":
            return term
        factors = term.args[1:]
        return factors[0] if len(factors) == 1 else ex.make("times", (ONE, *factors), "real")

    def scaled(self, expr: Expr, factor: float) -> Expr:
        """Return ``factor * expr``, multiplied out in each case and term.

        Args:
            expr: Expression in canonical form.
            factor: Number that multiplies the coefficient of each term.
        """
        if expr.op == "choose":
            return ex.choose(expr.args[0], *(self.scaled(branch, factor) for branch in expr.args[1:]))
        if expr.op == "real_sum":
            return self._sum([self.scaled(term, factor) for term in expr.args])
        return self.times(number(factor), expr)

    def _sum(self, terms: Sequence[Expr]) -> Expr:
        """Return the canonical sum: one coefficient for each product."""
        factors: dict[Expr, float] = {}
        largest: dict[Expr, float] = {}
        integers: list[Expr] = []
        pending = [*reversed(terms)]
        while pending:
            term = pending.pop()
            if term.op == "real_sum":
                pending += reversed(term.args)
            elif term.op == "number" or term.sort == "int":
                integers.append(term)
            elif term.op == "times":
                rest, factor = self._rest(term), float(term.args[0].args[0])
                factors[rest] = factors.get(rest, 0.0) + factor
                largest[rest] = max(largest.get(rest, 0.0), abs(factor))
            else:
                factors[term] = factors.get(term, 0.0) + 1.0
                largest[term] = max(largest.get(term, 0.0), 1.0)
        # Terms that cancel up to rounding are dropped, except for their poles. A factor may be infinite.
        is_gone = {term: abs(factor) <= _ROUNDING * largest[term] < math.inf for term, factor in factors.items()}
        kept = [
            term if factor == 1 else self.times(number(factor), term)
            for term, factor in factors.items()
            if not is_gone[term]
        ]
        kept = [*dict.fromkeys((*kept, *(self.times(ZERO, term) for term in factors if is_gone[term])))]
        return ex.add(*integers, *kept) if integers or kept else ZERO

    def cases(self, expr: Expr, apart: Callable[[Expr], bool] = lambda _: True) -> Expr:
        """Return the canonical form of ``expr`` with conditions on indices outermost, in canonical order.

        Args:
            expr: The expression; returned without moved conditions if it has too many.
            apart: Whether to move a condition.
        """
        expr = self.normal(expr)
        if expr.sort != "real" or not ex.uses([expr], "choose"):
            return expr
        tested = [part.args[0] for part in ex.walk(expr) if part.op == "choose" and on_indices(part.args[0])]
        kept = {oriented(condition) for condition in dict.fromkeys(tested) if apart(condition)}
        if not 0 < len(kept) <= _MOST_CONDITIONS:
            return expr
        conditions = sorted(kept, key=condition_order)
        if count_cases(conditions, _MOST_CASES) > _MOST_CASES:
            return expr
        return self._cases(expr, conditions)

    def _cases(self, expr: Expr, conditions: Sequence[Expr]) -> Expr:
        if not conditions:
            return expr
        first, *rest = conditions
        if not ex.contains([expr], first, ex.negate(first)):
            return self._cases(expr, rest)
        # Sizes of index variables may contain conditions on lengths, and identify the variables.
        kept = {} if ex.uses([first], "index") else {part: part for part in ex.walk(expr) if _is_variable(part)}
        sides = []
        for holds in (True, False):
            decided = {**kept, first: number(holds), ex.negate(first): number(not holds)}
            limit = limited(first, holds)
            for other in rest:
                value = decide(first, holds, other)
                if value is not None:
                    decided |= {other: number(value), ex.negate(other): number(not value)}
            side = self.normal(ex.substitute(expr, decided))
            if limit is None and ex.uses([side], "floor_quotient", "modulo"):
                limit = parted(first, holds)
            sides.append(self._cases(side, rest) if limit is None else self._within(side, limit, rest))
        return ex.choose(first, *sides)

    def _within(self, side: Expr, limit: dict[Expr, Expr], rest: Sequence[Expr]) -> Expr:
        """Return the cases of a side, simplified by the bounds of its index.

        The bounds simplify quotients, remainders, tables and sums of indices. Further conditions are considered within
        the bounds, so that the parts of tables do not depend on their order.
        """
        ((index, shifted),) = limit.items()
        within = [ex.substitute(condition, limit) for condition in rest]
        shorter = [without_digits(condition) for condition in within]
        if shifted.op != "number" and not (
            ex.uses([side], "floor_quotient", "modulo") or any(map(reads_table, ex.walk(side))) or within != shorter
        ):
            return self._cases(side, rest)
        result = self._cases(self.normal(ex.substitute(side, limit)), shorter)
        if shifted.op == "number":
            return result
        inner = next(part for part in ex.walk(shifted) if part.op == "index")
        return self.normal(ex.substitute(result, {inner: ex.subtract(index, ex.subtract(shifted, inner))}))


def _is_one_power(base: Expr, inner: float, outer: float) -> bool:
    """Return whether ``(base ** inner) ** outer`` is defined at the same numbers as ``base ** (inner * outer)``."""
    product, sign = inner * outer, least_sign(base)
    if inner % 2 == 0 and not outer.is_integer():
        return False
    has_pole, has_root = inner < 0 <= product, product.is_integer() and not (inner.is_integer() and outer.is_integer())
    return sign == 1 or not (has_pole or (has_root and sign is None))


def _joined(base: Expr, exponents: Sequence[float]) -> tuple[float, ...]:
    """Return the sum of a base's exponents in a product, or two parts of it.

    ``x / x`` and the square of a root remain two powers, because their sum is defined at further numbers.
    """
    whole = sum(exponents, 0.0)
    if len(exponents) == 1 or (sign := least_sign(base)) == 1:
        return (whole,)
    poles = sum(exponent for exponent in exponents if exponent < 0)
    if poles and whole >= 0:
        return whole - poles, poles
    has_root = whole.is_integer() and not all(exponent.is_integer() for exponent in exponents)
    return (whole - 0.5, 0.5) if has_root and sign is None else (whole,)


def _extreme(choice: Expr) -> Expr:
    """Return a choice that is a maximum or minimum in canonical form; others unchanged."""
    condition: Expr
    left: Expr
    right: Expr
    condition, left, right = choice.args
    if condition.op != "at_most" or {*condition.args} != {left, right}:
        return choice
    bound, operand = (left.as_number, right) if right.as_number is None else (right.as_number, left)
    is_larger = condition.args != (left, right)
    is_bound = bound is not None and (bound <= -LARGEST if is_larger else bound >= LARGEST)
    if is_bound and not reads_infinity(operand):
        # Every finite number is within the bound.
        return operand
    first, second = sorted((left, right), key=lambda operand: (operand.op == "number", operand.order))
    return ex.maximum(first, second) if is_larger else ex.minimum(first, second)


def _is_variable(part: Expr) -> bool:
    """Return whether an expression is an index variable that other expressions do not determine."""
    return part.op == "index" and len(part.operands) == 1


def reads_table(part: Expr) -> bool:
    """Return whether an expression is an element of a constant table of real numbers."""
    return part.op == "read" and part.sort == "real" and isinstance(part.args[0], Table)


def _part_of(table: Table, places: Sequence[Expr]) -> tuple[Table, Sequence[Expr]]:
    """Return the table cut to the columns that ``places`` covers, and the index in it."""
    *rows, last = places
    terms = ex.polynomial(last)
    first = most = terms.pop((), 0)
    for monomial, factor in terms.items():
        size = monomial[0].args[1].as_number if len(monomial) == 1 and monomial[0].op == "index" else None
        if not isinstance(size, int) or factor < 0:
            return table, places
        most += factor * (size - 1)
    columns = table.elements.shape[-1]
    if not terms or not 0 <= first <= most < columns or most - first + 1 == columns:
        return table, places
    elements = numpy.ascontiguousarray(table.elements[..., first : most + 1])
    return Table(f"{table.digest}[{first}:{most + 1}]", elements), (*rows, ex.subtract(last, number(first)))


def _regrouped(place: Expr) -> Expr:
    """Return a sum with ``size * (x // size) + x % size`` written as ``x``."""
    terms = ex.polynomial(place)
    for part in dict.fromkeys(atom for monomial in terms for atom in monomial if atom.op == "floor_quotient"):
        whole, size = part.args
        rest = (ex.modulo(whole, size),)
        times = number(terms.get(rest, 0))
        multiples = ex.polynomial(ex.multiply(times, ex.multiply(size, part)))
        if times is not ZERO and all(terms.get(monomial) == factor for monomial, factor in multiples.items()):
            others = {monomial: factor for monomial, factor in terms.items() if monomial not in {*multiples, rest}}
            return _regrouped(ex.add(ex.multiply(times, whole), from_polynomial(others)))
    return place
