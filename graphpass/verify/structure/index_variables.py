"""Index variables of expressions: their order, offsets, quotients and remainders."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural, quotient
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr
from graphpass.analysis.symbolic.nodes import from_polynomial, walk_outside


def digits_of(index: Expr, divisor: Expr, count: Expr) -> tuple[tuple[Expr, Expr], dict[Expr, Expr]]:
    """Return index variables for quotient and remainder, and the substitutions by them.

    Args:
        index: The index variable to split.
        divisor: The size that divides it, as `divisor_of` returns.
        count: Number of quotients.
    """
    parts = ex.index(f"{index.args[0]}/", count), ex.index(f"{index.args[0]}%", divisor)
    places = {index: ex.add(ex.multiply(divisor, parts[0]), parts[1])}
    places |= zip((ex.floor_divide(index, divisor), ex.modulo(index, divisor)), parts, strict=True)
    return parts, places


def divisor_of(variable: Expr, bodies: Sequence[Expr]) -> tuple[Expr, Expr] | None:
    """Return the smallest size that divides an index in ``bodies``, and the number of quotients.

    Args:
        variable: The index variable.
        bodies: Expressions that read it.

    Returns:
        ``None`` if no size divides the range of the index.
    """
    if not ex.uses(bodies, "floor_quotient", "modulo"):
        return None
    size = variable.args[1]
    divisors = {
        part.args[1]
        for part in ex.walk(*bodies)
        if part.op in {"floor_quotient", "modulo"} and part.args[0] is variable and part.args[1].as_number != 1
    }
    whole = [(by, count) for by in divisors if (count := quotient(size, by)) is not None and count is not ONE]
    return min(whole, key=lambda pair: (pair[0].as_number or 0, pair[0].order), default=None)


@functools.lru_cache(maxsize=1 << 12)
def _uses(argument: Expr) -> tuple[tuple[Expr, int, int, str], ...]:
    """Return the indices in an argument of a read.

    Returns:
        Index, coefficient, degree and operator of each atom that contains it.
    """
    return tuple(
        (index, factor, len(monomial), atom.op)
        for monomial, factor in ex.polynomial(argument).items()
        for atom in monomial
        for index in walk_outside({"index"}, atom)
        if index.op == "index"
    )


def variables(bodies: Sequence[Expr], sizes: Mapping[Expr, Expr] = MappingProxyType({})) -> list[Expr]:
    """Return the indices in ``bodies``, ordered by the reads that use them, then by size.

    Args:
        bodies: The expressions.
        sizes: Sizes of indices, by default those of their ranges.
    """
    places: dict[Expr, set[object]] = {}
    walked = list(walk_outside({"index"}, *bodies))
    bound = {part.args[1] for part in walked if part.op == "running_sum"}
    for part in walked:
        if part.op == "index" and part not in bound:
            places.setdefault(part, set())
        if part.op != "read":
            continue
        for place, argument in enumerate(part.args[1:]):
            for index, factor, degree, op in _uses(argument):
                if index not in bound:
                    places.setdefault(index, set()).add((part.args[0], place, factor, degree, op))
    # Sorted by text, because hashes of strings differ between processes.
    order = {index: (sorted(map(repr, uses)), sizes.get(index, index.args[1]).order) for index, uses in places.items()}
    return sorted(places, key=lambda index: order[index])


#: Operators that are simplified by the range of a variable.
_OF_RANGES = frozenset({"floor_quotient", "modulo", "not_positive", "running_sum", "zero"})


def without_offsets(
    bodies: Sequence[Expr], bounds: Sequence[Expr]
) -> tuple[Sequence[Expr], dict[Expr, Expr], dict[Expr, Expr]]:
    """Rewrite bodies as functions of ``index + offset``, with an index's largest offset.

    The range of a variable begins at 0, by which conditions on it are decided. Hence a sum that may be negative becomes
    a variable only if the bodies have no conditions on the index.

    Args:
        bodies: The expressions.
        bounds: Index variables to leave as they are.

    Returns:
        The bodies, the sum by new index, and the size of the replaced index.
    """
    offsets: dict[Expr, set[Expr]] = {}
    for part in ex.walk(*bodies):
        for index in part.operands:
            if index.op == "index" and index not in bounds:
                rest = ex.subtract(part, index) if part.op == "sum" else ZERO
                is_offset = not ex.uses([rest], "index")
                offsets.setdefault(index, set()).add(rest if is_offset else ZERO)
        if part.op in {"not_positive", "zero"}:
            for index, amount in _compared(part.args[0]):
                if index not in bounds:
                    offsets.setdefault(index, set()).add(amount)
    arguments, sizes = dict[Expr, Expr](), dict[Expr, Expr]()
    for index, amounts in offsets.items():
        most = [one for one in amounts if not any(map(_is_negative, (ex.subtract(one, other) for other in amounts)))]
        if most and (amount := most[0]) is not ZERO and (is_natural(amount) or not _depends_on_range(bodies, index)):
            moved = ex.index(f"{index.args[0]}+", ex.add(index.args[1], amount))
            bodies = [ex.substitute(body, {index: ex.subtract(moved, amount)}) for body in bodies]
            arguments[moved], sizes[moved] = ex.add(index, amount), index.args[1]
    return bodies, arguments, sizes


def _compared(difference: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield indices that a condition compares, with the lengths added to each.

    An example is ``key - query - past <= 0``, which adds the past to the query.
    """
    terms = ex.polynomial(difference)
    lengths = from_polynomial(
        {monomial: factor for monomial, factor in terms.items() if not ex.uses(monomial, "index")}
    )
    for monomial, factor in terms.items():
        if len(monomial) == 1 and monomial[0].op == "index" and factor in (1, -1):
            yield monomial[0], ex.multiply(ex.number(factor), lengths)


def _depends_on_range(bodies: Sequence[Expr], index: Expr) -> bool:
    """Return whether bodies compare or divide an index."""
    return ex.uses(bodies, *_OF_RANGES) and any(
        part.op in _OF_RANGES and ex.contains([part], index) for part in ex.walk(*bodies)
    )


def _is_negative(amount: Expr) -> bool:
    """Return whether a polynomial of lengths has a negative coefficient."""
    return any(coefficient < 0 for coefficient in ex.polynomial(amount).values())
