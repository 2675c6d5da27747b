"""Convert indices between shapes: broadcast, flattened, reshaped, scattered."""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import divided
from graphpass.analysis.symbolic.elements import Index, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.nodes import from_polynomial
from graphpass.analysis.symbolic.text import expression_text


def index_along(name: str, size: Expr) -> Expr:
    """Return an index variable of an axis; 0 if its size is 1.

    Args:
        name: Name of the variable, unique within an expression.
        size: Size of the axis.
    """
    return ZERO if size is ONE else ex.index(name, size)


def broadcast_index(index: Iterable[Expr], sizes: Iterable[Expr]) -> Index:
    """Return the index into an operand that is broadcast: 0 along axes of size 1.

    Args:
        index: Index into the result, along the axes that the operand has.
        sizes: Sizes of the operand.
    """
    return tuple(ZERO if size is ONE else place for place, size in zip(index, sizes, strict=True))


def flat_place(index: Index, sizes: Index) -> Expr:
    """Return the row-major flat index of an element.

    Args:
        index: Index along each axis.
        sizes: Sizes of the tensor; the first does not affect the result.
    """
    flat: Expr = ZERO
    for place, size in zip(index, sizes, strict=True):
        flat = ex.add(ex.multiply(flat, size), place)
    return flat


def index_of(flat: Expr, sizes: Index) -> Index:
    """Return the index of the element at a flat index: the inverse of `flat_place`.

    Args:
        flat: Row-major flat index.
        sizes: Sizes of the tensor, at least one.

    Raises:
        UnknownError: ``flat`` has no proven quotient by a size.
    """
    indices: list[Expr] = []
    for size in reversed(sizes[1:]):
        if size.as_number is None and divided(flat, size) is None:
            raise UnknownError(
                f"cannot reshape it: no proven quotient of {expression_text(flat)} by {expression_text(size)}"
            )
        flat, digit = digits(flat, size)
        indices.insert(0, digit)
    return (flat, *indices)


def digits(place: Expr, size: Expr) -> tuple[Expr, Expr]:
    """Return the quotient and the remainder of an index by a size.

    Args:
        place: Dividend, an integer.
        size: Divisor, 1 or more.
    """
    parts = divided(place, size)
    if parts is not None:
        return parts
    total = size.as_number
    if isinstance(total, int) and total > 0:
        terms = ex.polynomial(place)
        whole = from_polynomial(
            {monomial: factor // total for monomial, factor in terms.items() if factor % total == 0}
        )
        if whole is not ZERO:
            part, rest = digits(ex.subtract(place, ex.multiply(size, whole)), size)
            return ex.add(whole, part), rest
    for atom in place.operands if place.op == "sum" and isinstance(total, int) else ():
        # ``16 * head + channel`` by 32 is ``head`` by 2, and ``channel`` is part of the remainder.
        count = atom.args[1].as_number if atom.op == "index" else None
        rest = ex.subtract(place, atom)
        if not (isinstance(count, int) and isinstance(total, int) and count > 1 and total % count == 0):
            continue
        if all(factor % count == 0 for factor in ex.polynomial(rest).values()):
            whole, part = digits(ex.floor_divide(rest, number(count)), number(total // count))
            return whole, ex.add(ex.multiply(number(count), part), atom)
    return ex.floor_divide(place, size), ex.modulo(place, size)


def regrouped(index: Index, sizes: Index, targets: Index) -> tuple[list[Expr], list[int], Expr]:
    """Match equal axes of a Reshape from both ends.

    Args:
        index: Index of an element in a tensor of ``sizes``.
        sizes: Sizes on one side of the Reshape.
        targets: Sizes on the other side.

    Returns:
        The index into ``targets``, set on matched axes; the unmatched axes of ``targets``; the flat index over these.
    """
    axes = [axis for axis, size in enumerate(sizes) if size is not ONE]
    places = [axis for axis, size in enumerate(targets) if size is not ONE]
    result: list[Expr] = [ZERO] * len(targets)
    while axes and places and sizes[axes[-1]] is targets[places[-1]]:
        result[places.pop()] = index[axes.pop()]
    while axes and places and sizes[axes[0]] is targets[places[0]]:
        result[places.pop(0)] = index[axes.pop(0)]
    return result, places, flat_place(tuple(index[axis] for axis in axes), tuple(sizes[axis] for axis in axes))


def regroup(index: Index, sizes: Index, targets: Index) -> Index:
    """Convert an index through a Reshape, in row-major order.

    Args:
        index: Index of an element in a tensor of ``sizes``.
        sizes: Sizes on one side of the Reshape.
        targets: Sizes on the other side, for as many elements.

    Returns:
        The index of the element in a tensor of ``targets``.

    Raises:
        UnknownError: As `index_of`.
    """
    result, places, flat = regrouped(index, sizes, targets)
    if not places:
        return tuple(result)
    for place, digit in zip(places, index_of(flat, tuple(targets[place] for place in places)), strict=True):
        result[place] = digit
    return tuple(result)


def solved(spread: list[Expr], places: Index, wanted: Index) -> tuple[dict[Expr, Expr], Expr]:
    """Solve ``places == wanted`` for the indices of a scatter, and their condition.

    Args:
        spread: Index variables of the scatter's updates.
        places: Index that each update is written to: ``step * index + offset`` along each axis, with a different index
            of ``spread`` for each, a positive constant step, and an offset without these indices.
        wanted: Index of an element of the result, along the same axes.

    Returns:
        The expression of each index, and the condition that the element is written.

    Raises:
        UnknownError: A place has another form, or some index is in no place.
    """
    solution: dict[Expr, Expr] = {index: ZERO for index in spread if index.args[1] is ONE}
    condition = ex.TRUE
    for place, target in zip(places, wanted, strict=True):
        place = ex.substitute(place, solution) if solution else place
        own = [index for index in spread if index not in solution and ex.contains([place], index)]
        if not own:
            condition = ex.conjunction(condition, ex.equal(place, target))
            continue
        step = ex.polynomial(place).get((own[0],), 0)
        rest = ex.subtract(place, ex.multiply(number(step), own[0]))
        if len(own) > 1 or step < 1 or ex.contains([rest], own[0]):
            raise UnknownError("it writes to indices that are computed")
        shifted = ex.subtract(target, rest)
        solution[own[0]] = ex.floor_divide(shifted, number(step))
        if step > 1:
            condition = ex.conjunction(condition, ex.equal(ex.modulo(shifted, number(step)), ZERO))
        inside = ex.conjunction(ex.at_most(ZERO, solution[own[0]]), ex.less(solution[own[0]], own[0].args[1]))
        condition = ex.conjunction(condition, inside)
    if any(index not in solution for index in spread):
        raise UnknownError("it writes to an index several times")
    return solution, condition
