"""Compare positional encodings of two models (rotary cosines and sines, learned vectors) at every position."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphpass.analysis.equations.angles import Angles
from graphpass.analysis.equations.evaluation import SampledStep
from graphpass.analysis.equations.rotation import POSITION, QUERY, at_position, restarts
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.evaluate import arrays_at
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.solver import example_of
from graphpass.analysis.symbolic.step import PAST, unpadded
from graphpass.verify.structure.angles import ROUNDING
from graphpass.verify.verdicts import Equal, Open, Unlike, Verdict

if TYPE_CHECKING:
    from graphpass.verify.difference import Tolerance

Array: TypeAlias = "np.ndarray[Any, Any]"

#: Positions per chunk of the numerical comparison, and the minimum number of positions compared.
_SWEPT, _MOST_SWEPT = 2048, 2**13

#: Maximum elements of the intermediate array in the search for equal columns.
_PAIRED = 2**18

#: Maximum columns that are compared as a set. Tables of learned positions have more, and are compared in order.
_MOST_COLUMNS = 1024


def compare_angles(reference: Angles, candidate: Angles, tolerance: Tolerance) -> Verdict | None:
    """Compare the positional encodings of one attention, or of one sum with learned positions.

    Channels are compared as sets, without signs: rotary tables may repeat or negate one half.

    Args:
        reference: The reference's encodings.
        candidate: The candidate's.
        tolerance: Tolerance of the numerical comparison; only ``absolute`` is used.

    Returns:
        The verdict; ``None`` if neither model has positional encodings there.
    """
    result = _compared(reference, candidate, tolerance)
    if not isinstance(result, Equal):
        return result
    ends = [angles.rows for angles in (reference, candidate)]
    return replace(result, rows=min((rows for rows in ends if rows is not None), default=0))


def _compared(reference: Angles, candidate: Angles, tolerance: Tolerance) -> Verdict | None:
    sides = ("reference", reference), ("candidate", candidate)
    for name, angles in sides:
        if angles.misses:
            return Open(f"the {name}'s angles: {angles.misses[0]}")
    if not reference.forms and not candidate.forms:
        return None
    if _positive(reference.forms) == _positive(candidate.forms):
        return Equal("any")
    # Positions of some encodings restart at 0 with each step; they cannot be compared with others as one variable.
    if len({restarts(form) for _, angles in sides for form in angles.forms if _counts(form)}) > 1:
        return Open("some positions count from the first token of each step")
    channels = [angles.channels() for _, angles in sides]
    if _positive(channels[0]) == _positive(channels[1]):
        return Equal("any")
    turned = [_positive(_turning(expr)) for expr in channels]
    if turned[0] == turned[1]:
        return Equal("unpadded")
    if any(any(not _follows(expr) for expr in side) for side in turned):
        return Open("expressions of angles differ in form, and depend on more than positions")
    for (name, _), side in zip(sides, turned, strict=True):
        if not side:
            return Open(f"found in the {'candidate' if name == 'reference' else 'reference'} alone")
    ends = [angles.rows or 0 for _, angles in sides]
    most = max(_MOST_SWEPT, max(ends) + 1)
    return _positions(turned) or _swept([_turning(angles.forms) for _, angles in sides], most, tolerance)


def _counts(form: Expr) -> bool:
    return ex.contains([unpadded(form)], QUERY, PAST)


def _positive(exprs: Iterable[Expr]) -> frozenset[Expr]:
    """Return expressions with the signs of their constant factors removed."""

    def positive(expr: Expr) -> Expr:
        factors = [arg.as_number for arg in expr.args] if expr.op == "product" else []
        return ex.negative(expr) if any(factor is not None and factor < 0 for factor in factors) else expr

    return frozenset(map(positive, exprs))


def _turning(exprs: Iterable[Expr]) -> list[Expr]:
    """Return the expressions with a position or a table, as functions of `POSITION`."""
    placed = [at_position(expr) for expr in exprs]
    return [expr for expr in placed if any(part is POSITION or part.op == "read" for part in ex.walk(expr))]


def _follows(expr: Expr) -> bool:
    return all(
        part is POSITION
        or (
            part.op not in {"length", "opaque", "running_sum"}
            and (part.op != "index" or str(part.args[0]).startswith("channel"))
            and (part.op != "read" or isinstance(part.args[0], Table))
        )
        for part in ex.walk(expr)
    )


def _positions(sides: list[frozenset[Expr]]) -> Verdict | None:
    """Return the verdict on arguments of equal functions; ``None`` if the solver does not decide."""
    factored = [_factored(side) for side in sides]
    if factored[0] is None or factored[1] is None or factored[0][1] != factored[1][1]:
        return None
    places = factored[0][0], factored[1][0]
    answer = example_of(ex.negate(ex.equal(*places)))
    if isinstance(answer, str):
        return Equal("unpadded") if answer == "never" else None
    position = answer.values.get(POSITION, 0)
    numbers = [int(arrays_at(place, {POSITION: np.array(position)})) for place in places]
    words = f"position {position} has the angles of position {numbers[0]}, in the candidate of position {numbers[1]}"
    return Unlike(SampledStep(1, position, 1), words)


def _factored(side: frozenset[Expr]) -> tuple[Expr, frozenset[Expr]] | None:
    """Return the one integer expression in ``side``, and ``side`` as functions of it.

    Returns:
        ``None`` if they depend on several integer expressions, or on none.
    """
    places: dict[Expr, None] = {}
    for expr in side:
        depends = set()
        pending = [expr]
        for part in ex.walk(expr):
            if part is POSITION or any(operand in depends for operand in part.operands):
                depends.add(part)
        while pending:
            part = pending.pop()
            if part in depends and part.sort == "int":
                places[part] = None
            elif part in depends:
                pending += part.operands
    if len(places) != 1:
        return None
    place = next(iter(places))
    return place, frozenset(ex.substitute(expr, {place: POSITION}) for expr in side)


def _swept(sides: list[list[Expr]], most: int, tolerance: Tolerance) -> Verdict:
    """Return the verdict on the first ``most`` positions, or those of a table."""
    for past in range(0, most, _SWEPT):
        columns = [_columns(side, np.arange(past, min(past + _SWEPT, most))) for side in sides]
        ends = np.any([np.ma.getmaskarray(side).any(axis=1) for side in columns], axis=0)
        size = int(ends.argmax()) if ends.any() else len(ends)
        unlike = _first_unlike(columns[0].data[:size], columns[1].data[:size], past, tolerance) if size else None
        if unlike is not None:
            return unlike
        if size < len(ends):
            rows = past + size
            return Equal("unpadded") if rows else Open("tables have no row for position 0")
    return Open(f"formulas differ in form, and agree at the first {most} positions", most)


def _first_unlike(reference: Array, candidate: Array, first: int, tolerance: Tolerance) -> Unlike | None:
    """Return the shortest range of positions from ``first`` on in which the columns differ.

    Args:
        reference: f64 ``[positions, columns]``.
        candidate: f64 ``[positions, columns]``.
        first: The first position.
        tolerance: See `unlike_columns`.
    """
    words = unlike_columns(reference, candidate, first, tolerance)
    if words is None:
        return None
    alike, unlike = 0, len(reference)
    while unlike - alike > 1:
        middle = (alike + unlike) // 2
        if unlike_columns(reference[:middle], candidate[:middle], first, tolerance) is None:
            alike = middle
        else:
            unlike = middle
    return Unlike(SampledStep(1, first, unlike), f"{words}, up to {first + unlike - 1}")


def _columns(forms: list[Expr], places: Array) -> np.ma.MaskedArray[Any, Any]:
    """Return the values f64 ``[positions, columns]``, masked at positions after the end of a table."""
    columns = []
    for form in forms:
        channels = sorted({part for part in ex.walk(form) if part.op == "index"}, key=lambda part: str(part.args[0]))
        values = {POSITION: places.reshape(-1, *[1] * len(channels))}
        for axis, channel in enumerate(channels):
            count = channel.args[1].as_number
            values[channel] = np.arange(count).reshape([-1 if axis == own else 1 for own in range(len(channels))])
        with np.errstate(all="ignore"):
            array = arrays_at(form, values).astype(np.float64)
        shape = np.broadcast_shapes(array.shape, values[POSITION].shape)
        columns.append(np.broadcast_to(array, shape, subok=True).reshape(len(places), -1))
    masks = np.concatenate([np.ma.getmaskarray(array) for array in columns], axis=1)
    return np.ma.array(np.concatenate([array.data for array in columns], axis=1), mask=masks)


def unlike_columns(reference: Array, candidate: Array, first: int, tolerance: Tolerance) -> str | None:
    """Return the difference of two sets of columns, repeated and negated columns aside.

    Args:
        reference: ``[positions, columns]``.
        candidate: ``[positions, columns]``, with any number of columns.
        first: The first position.
        tolerance: Only ``absolute`` is used. The allowed difference grows with the position, by the error of f32.

    Returns:
        The difference; ``None`` if each column of one set equals a column of the other, up to sign.
    """
    allowed = max(tolerance.absolute, ROUNDING * (first + len(reference)))
    if reference.shape == candidate.shape and np.allclose(reference, candidate, rtol=0, atol=allowed):
        return None
    if max(reference.shape[1], candidate.shape[1]) > _MOST_COLUMNS:
        return f"vectors of positions from {first} on differ"
    left, right = (np.unique(columns.round(12), axis=1) for columns in (reference, candidate))
    for name, own, others in (("reference", left, right), ("candidate", right, left)):
        column = _unmatched(own, others, allowed)
        if column is not None:
            numbers = " ".join(f"{number:.6g}" for number in column[:3])
            return f"the {name} alone multiplies query or keys at positions from {first} on by {numbers}"
    return None


def _unmatched(columns: Array, others: Array, allowed: float) -> Array | None:
    """Return the first of ``columns`` that equals none of ``others`` up to sign."""
    count = max(1, min(len(columns), _PAIRED // max(columns.shape[1] * others.shape[1], 1)))
    # A sample of the rows selects the nearest column, which is then compared in all rows.
    some = np.linspace(0, len(columns) - 1, count).astype(int)
    nearest = np.minimum(*_distances(columns[some], others[some])).argmin(axis=1)
    apart = np.minimum(*(np.abs(columns - sign * others[:, nearest]).max(axis=0) for sign in (1, -1)))
    for place in np.flatnonzero(apart > allowed):
        column = columns[:, [place]]
        if np.minimum(*(np.abs(column - sign * others).max(axis=0) for sign in (1, -1))).min() > allowed:
            return column[:, 0]
    return None


def _distances(left: Array, right: Array) -> tuple[Array, Array]:
    """Return the maximum distances ``[left, right]`` of pairs of columns; again with ``right`` negated."""
    return (
        np.abs(left[:, :, None] - right[:, None]).max(axis=0),
        np.abs(left[:, :, None] + right[:, None]).max(axis=0),
    )
