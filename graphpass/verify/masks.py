"""Compare the effective masks of two models for every batch, past and length."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import isclose
from typing import Literal, TypeAlias

from graphpass.analysis.attention.alibi import alibi_slopes
from graphpass.analysis.attention.mask import AttentionMask, Scope
from graphpass.analysis.equations.evaluation import SampledStep
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.solver import Example, example_of, never
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST, unpadded
from graphpass.verify.verdicts import Equal, Open, Unlike, Verdict

#: Relative tolerance of ALiBi slopes, which are rounded to f32.
_ROUNDING = 1e-5


def compare_masks(reference: AttentionMask, candidate: AttentionMask, *, padded: bool = True) -> Verdict:
    """Compare the conditions and biases of two effective masks as expressions.

    Queries that attend to no key are padding, and are ignored. So is a bias that is equal for all keys of a query.

    Args:
        reference: The reference's mask. If it attends to padding, the candidate's need not.
        candidate: The candidate's mask.
        padded: Whether both models have an input by which masks exclude padding.

    Returns:
        Whether they are equal; an example or the reason if not.
    """
    for name, mask in (("reference", reference), ("candidate", candidate)):
        if mask.misses:
            return Open(f"the {name}'s mask: {mask.misses[0]}")
    reference, candidate = _of_equal_batch(reference, candidate), _of_equal_batch(candidate, reference)
    left, right = reference.scope, candidate.scope
    own = {right.row: left.row, right.head: left.head, right.query: left.query, right.key: left.key}
    if (right.query.args[1], right.key.args[1]) != (left.query.args[1], left.key.args[1]):
        return Open("the models differ in the number of keys or queries of one step")
    visible = reference.visible, ex.substitute(candidate.visible, own)
    bias = reference.bias, ex.substitute(candidate.bias, own)
    compared = partial(_compared, scope=left, is_causal=reference.is_causal and candidate.is_causal)
    result = compared(visible, bias)
    if result is None:
        return Equal("any")
    plain = compared(tuple(map(unpadded, visible)), tuple(map(unpadded, bias)))  # type: ignore[arg-type]
    if isinstance(plain, Example):
        return _unlike(left, plain, needs_padding=False)
    reads_as_is = not (reference.has_lengths or candidate.has_lengths or any(map(_reads_positions, visible)))
    if isinstance(result, Example) and reads_as_is and padded and not _hides_padding(reference, visible[1]):
        return _unlike(left, result, needs_padding=True)
    # Row lengths and positions describe padding only for rows that are padded at one end.
    return Equal("unpadded") if plain is None else Open(plain)


def _of_equal_batch(mask: AttentionMask, other: AttentionMask) -> AttentionMask:
    """Return ``mask`` for the batch that ``other`` is fixed at."""
    row, fixed = mask.scope.row, other.scope.row
    batch = fixed.args[1]
    if row.args[1] is batch or batch.op != "number":
        return mask
    given = {row: ex.ZERO if batch is ex.ONE else fixed, BATCH: batch}
    visible, bias = (ex.substitute(expr, given) for expr in (mask.visible, mask.bias))
    return replace(mask, scope=replace(mask.scope, row=fixed), visible=visible, bias=bias)


def unlike_visible(left: Expr, right: Expr, key: Expr) -> Example | Literal["never", "unknown"]:
    """Return an example at which only one of two conditions holds.

    Queries that attend to no key by ``left`` are padding, and are ignored.

    Args:
        left: The condition under which a query attends to a key.
        right: The condition that it is compared with.
        key: The index of the key in both conditions.

    Returns:
        The example; ``"never"`` if the conditions are equal, ``"unknown"`` if this is not decided.
    """
    differs = ex.negate(ex.equal(left, right))
    if ex.uses([differs], "opaque", "times", "raise"):
        return "unknown"
    seen = ex.substitute(left, {key: ex.index("other key", key.args[1])})
    return example_of(ex.conjunction(differs, seen))


def reads_padding(mask: AttentionMask) -> bool:
    """Return whether a mask depends on an input that distinguishes padding from tokens."""
    return mask.has_lengths or any(part.op == "read" and part.sort == "bool" for part in ex.walk(mask.visible))


def _hides_padding(reference: AttentionMask, candidate: Expr) -> bool:
    """Return whether ``candidate`` is the reference's mask without padding, at keys that are tokens."""
    row, query, key = reference.scope.row, reference.scope.query, reference.scope.key
    reads = [part for part in ex.walk(candidate) if part.op == "read" and part.sort == "bool" and part.args[-1] is key]
    if len(reads) != 1 or reads[0].args[1:] != (row, key):
        return False
    is_token = ex.substitute(reads[0], {key: ex.add(PAST, query)})
    alone = ex.conjunction(unpadded(reference.visible), reads[0])
    return never(is_token, ex.negate(ex.equal(alone, candidate)))


def _reads_positions(expr: Expr) -> bool:
    return any(part.op == "read" and isinstance(part.args[0], str) and part.sort == "int" for part in ex.walk(expr))


def _compared(
    visible: tuple[Expr, Expr], bias: tuple[Expr, Expr], *, scope: Scope, is_causal: bool
) -> Example | str | None:
    """Return an example at which two masks differ.

    Returns:
        The example; the reason if equality is not decided; ``None`` if the masks are equal.
    """
    key, answer = scope.key, unlike_visible(*visible, scope.key)
    if answer != "never":
        return "the solver does not decide their equality" if isinstance(answer, str) else answer
    if not ex.contains([ex.subtract(*bias)], key):
        return None
    lines = [_line(number, scope, is_causal=is_causal) for number in bias]
    is_one = lines[0] is not None and lines[1] is not None and _are_alike(lines[0], lines[1])
    return None if is_one else "biases of scores differ in form"


_Line: TypeAlias = "tuple[bool, tuple[float, ...]]"


def _line(bias: Expr, scope: Scope, *, is_causal: bool) -> _Line | None:
    """Return whether an ALiBi bias counts tokens instead of slots, and its slopes.

    Returns:
        ``None`` if the bias is not linear in the distance of the key.
    """
    counted = {part for part in ex.walk(bias) if part.op == "running_sum" and part.args[2] is scope.key}
    read = {part for part in ex.walk(bias) if part.op == "read" and part.sort == "bool" and part.args[-1] is scope.key}
    kept = ex.substitute(bias, {**dict.fromkeys(read, ex.TRUE), **dict.fromkeys(counted, scope.key)})
    slopes = alibi_slopes(kept, scope, is_causal=is_causal)
    return None if slopes is None else (bool(counted), slopes)


def _are_alike(left: _Line, right: _Line) -> bool:
    return left[0] == right[0] and all(map(partial(isclose, rel_tol=_ROUNDING), left[1], right[1]))


def _unlike(scope: Scope, example: Example, *, needs_padding: bool) -> Unlike:
    values = {BATCH: scope.row.args[1].as_number or 1, PAST: 0, LENGTH: 1} | dict(example.values)
    step = SampledStep(values[BATCH], values[PAST], values[LENGTH])
    query = values.get(scope.query, 0) + step.past
    words = f"the query at position {query} attends to the key at {values.get(scope.key, 0)} in one model alone"
    if step.batch > 1:
        words = f"in row {values.get(scope.row, 0)} of {step.batch}, {words}"
    hidden = [places[-1] for (_, places), bit in sorted(example.inputs.items()) if bit is False]
    if needs_padding and hidden:
        words += f", if {len(hidden)} positions from {hidden[0]} to {hidden[-1]} are padding"
    return Unlike(step, words, needs_padding)
