"""Conditions on indices and lengths: canonical order, bounds, and implications."""

from __future__ import annotations

from collections.abc import Sequence

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.nodes import from_polynomial


def oriented(condition: Expr) -> Expr:
    """Return a condition or its negation, whichever is the canonical one."""
    if condition.op == "not":
        negated: Expr = condition.args[0]
        return negated
    if condition.op != "not_positive":
        return condition
    lead = next(factor for monomial, factor in ex.polynomial(condition.args[0]).items() if monomial)
    return condition if lead > 0 else ex.negate(condition)


def without_digits(condition: Expr) -> Expr:
    """Return a bound of a sum of indices without the terms that cannot change it.

    For example, ``2 * x + y <= 7`` is ``x <= 3`` for ``y`` of size 2.

    Args:
        condition: Any condition.

    Returns:
        The condition, unchanged if it is another, or all terms matter.
    """
    terms = ex.polynomial(condition.args[0]) if condition.op == "not_positive" else {}
    ranges = {monomial: _range(monomial, factor) for monomial, factor in terms.items()}
    steps = {abs(factor) for monomial, factor in terms.items() if monomial and abs(factor) > 1}
    for step in sorted(steps, reverse=True):
        fine = [ranges[monomial] for monomial, factor in terms.items() if not monomial or factor % step]
        if len(fine) <= (() in terms) or None in fine:
            continue
        # ``step * x + y <= 0`` is ``x <= floor(-y / step)``.
        least, most = (-sum(ends) // step for ends in zip(*filter(None, fine), strict=True))
        if least == most:
            coarse = {monomial: factor // step for monomial, factor in terms.items() if monomial and not factor % step}
            return ex.at_most(from_polynomial(coarse), number(least))
    return condition


def _range(monomial: tuple[Expr, ...], factor: int) -> tuple[int, int] | None:
    """Return the least and the largest value of a term; ``None`` if unknown."""
    if not monomial:
        return factor, factor
    size = monomial[0].args[1].as_number if len(monomial) == 1 and monomial[0].op == "index" else None
    if not isinstance(size, int) or size < 1:
        return None
    ends = 0, factor * (size - 1)
    return min(ends), max(ends)


def condition_order(condition: Expr) -> tuple[int, int]:
    """Return a sort key: conditions on fewer indices come first, since they decide others."""
    return sum(part.op == "index" for part in ex.walk(condition)), condition.order


def limited(condition: Expr, holds: bool) -> dict[Expr, Expr] | None:
    """Return the substitution of an index that a condition bounds by a number.

    Args:
        condition: The condition, for example ``x - 3 <= 0``.
        holds: Whether it holds.

    Returns:
        The index and ``least + index`` over the remaining range, or a number if one value remains. ``None`` if the
        condition does not bound one index of fixed size.
    """
    if condition.op != "not_positive":
        return None
    terms = ex.polynomial(condition.args[0])
    atoms = [monomial for monomial in terms if monomial]
    if len(atoms) != 1 or len(atoms[0]) != 1 or atoms[0][0].op != "index" or terms[atoms[0]] not in (1, -1):
        return None
    index = atoms[0][0]
    size = index.args[1].as_number
    if not isinstance(size, int):
        return None
    # ``x + c <= 0`` or ``c - x <= 0``
    bound, is_upper = terms.get((), 0), (terms[atoms[0]] == 1) == holds
    if terms[atoms[0]] == 1:
        least, end = (0, 1 - bound) if holds else (1 - bound, size)
    else:
        least, end = (bound, size) if holds else (0, bound)
    least, end = max(least, 0), min(end, size)
    if not (0 <= least < end <= size) or is_upper != (least == 0):
        return None
    if end - least == 1:
        return {index: number(least)}
    return {index: ex.add(number(least), ex.index(f"{index.args[0]}+{least}", number(end - least)))}


def parted(condition: Expr, holds: bool) -> dict[Expr, Expr] | None:
    """Return the substitution of an index that a condition compares with a length.

    Args:
        condition: The condition, for example ``x - past + 1 <= 0``.
        holds: Whether it holds.

    Returns:
        The index, and an index over the part of its range before or after the length. ``None`` if the condition
        compares several indices, or the length may exceed the range.
    """
    terms = ex.polynomial(condition.args[0]) if condition.op == "not_positive" else {}
    indices = [monomial[0] for monomial in terms if len(monomial) == 1 and monomial[0].op == "index"]
    rest = from_polynomial({monomial: factor for monomial, factor in terms.items() if monomial != tuple(indices)})
    if len(indices) != 1 or terms[indices[0],] not in (1, -1) or ex.uses([rest], "index"):
        return None
    (index,) = indices
    # ``x + c <= 0``: up to ``-c``, and from ``1 - c`` on; ``c - x <= 0``: from ``c`` on, and before it.
    start = ex.subtract(ONE, rest) if terms[index,] == 1 else rest
    size = index.args[1]
    if not (is_natural(start) and is_natural(ex.subtract(size, start))):
        return None
    if (terms[index,] == 1) == holds:
        return {index: ex.index(f"{index.args[0]} before", start)}
    return {index: ex.add(start, ex.index(f"{index.args[0]} after", ex.subtract(size, start)))}


def count_of(body: Expr, index: Expr) -> Expr | None:
    """Return the number of values of an index at which ``body`` is 1.

    For example, a causal mask has ``past + q + 1`` visible keys; guards of fully masked rows compute this number.

    Args:
        body: Expression of ``index``, such as an effective mask as a number.
        index: Index variable, whose values are counted.

    Returns:
        ``None`` unless ``body`` is 1 between bounds of the index and 0 at all other values.
    """
    if body.op != "choose" or body.args[1:] != (ONE, ZERO):
        return None
    first, last = ZERO, ex.subtract(index.args[1], ONE)
    for condition in body.args[0].args if body.args[0].op == "and" else (body.args[0],):
        solved = _solved(condition, "not_positive", index)
        if solved is None:
            return None
        factor, rest = solved
        if factor == 1:
            last = ex.minimum(last, ex.negative(rest))
        else:
            first = ex.maximum(first, rest)
    return ex.maximum(ZERO, ex.add(ex.subtract(last, first), ONE))


def place_of(condition: Expr, index: Expr) -> Expr | None:
    """Return the value of an index that satisfies an equation; ``None`` unless in range.

    Args:
        condition: The equation, for example ``x - past = 0``.
        index: Index variable, which the equation is solved for.
    """
    solved = _solved(condition, "zero", index)
    if solved is None:
        return None
    factor, rest = solved
    place = ex.negative(rest) if factor == 1 else rest
    last = ex.subtract(index.args[1], ONE)
    return place if is_natural(place) and is_natural(ex.subtract(last, place)) else None


def _solved(condition: Expr, op: str, index: Expr) -> tuple[int, Expr] | None:
    """Return factor (1 or -1) and rest of ``factor * index + rest``, which a condition compares with 0."""
    terms = ex.polynomial(condition.args[0]) if condition.op == op else {}
    factor = terms.pop((index,), 0)
    rest = from_polynomial(terms)
    return (factor, rest) if factor in (1, -1) and not ex.contains([rest], index) else None


def decide(condition: Expr, holds: bool, other: Expr) -> bool | None:
    """Return the value of ``other`` under a known condition; ``None`` if undecided.

    Args:
        condition: The known condition.
        holds: Its value.
        other: The condition to decide.
    """
    limit = limited(condition, holds)
    if limit is not None and (value := ex.substitute(other, limit).as_number) is not None:
        return bool(value)
    bounds = _bounds(condition if holds else ex.negate(condition))
    if any(_follows(bounds, bound) for bound in _contradictions(other)):
        return False
    required = _bounds(other)
    return True if required and all(_follows(bounds, bound) for bound in required) else None


def _bounds(condition: Expr) -> tuple[Expr, ...]:
    """Return integer expressions; a condition holds if and only if all are at most 0."""
    if condition.op == "not_positive":
        return (condition.args[0],)
    return (condition.args[0], ex.negative(condition.args[0])) if condition.op == "zero" else ()


def _contradictions(condition: Expr) -> tuple[Expr, ...]:
    """Return integer expressions; a condition does not hold if any is at most 0."""
    return tuple(ex.subtract(ONE, bound) for bound in _bounds(condition))


def _follows(bounds: Sequence[Expr], bound: Expr) -> bool:
    return any(is_natural(ex.subtract(known, bound)) for known in bounds)


def count_cases(conditions: Sequence[Expr], most: int) -> int:
    """Return the number of possible combinations of conditions.

    Args:
        conditions: The conditions; earlier ones decide later ones.
        most: Number above which counting stops.
    """
    count, pending = 0, [tuple(conditions)]
    while pending and count <= most:
        left = pending.pop()
        if not left:
            count += 1
            continue
        first, *rest = left
        pending += (
            tuple(condition for condition in rest if decide(first, holds, condition) is None) for holds in (True, False)
        )
    return count


def on_indices(condition: Expr) -> bool:
    """Return whether a condition depends only on indices and lengths."""
    return not ex.uses([condition], "read", "opaque", "apply", "running_sum")
