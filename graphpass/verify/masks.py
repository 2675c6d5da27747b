"""Compare the masks of two models' attention for every batch, past and length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphpass.analysis.attention.mask import BATCH, LENGTH, PAST, AttentionMask, unpadded
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.solver import Example, example_of

Inputs: TypeAlias = Literal["any", "unpadded"]
"""The inputs that masks are equal for: any, or those without padding."""


@dataclass(frozen=True, slots=True)
class EqualMasks:
    """Two masks are equal for every batch, past and length.

    Attributes:
        inputs: The inputs for which they are.
    """

    inputs: Inputs


@dataclass(frozen=True, slots=True)
class UnlikeMasks:
    """Two masks differ.

    Attributes:
        place: Lengths of a step at which they do, for people.
        reason: The difference there.
    """

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class OpenMasks:
    """Two masks are not decided.

    Attributes:
        reason: The part that is not known, with its node.
    """

    reason: str


def compare_masks(reference: AttentionMask, candidate: AttentionMask) -> EqualMasks | UnlikeMasks | OpenMasks:
    """Compare two masks as conditions and numbers of their indices.

    Queries that see no key are padding and are left out. A number added to all keys of a query changes nothing.
    """
    for name, mask in (("reference", reference), ("candidate", candidate)):
        if mask.misses:
            return OpenMasks(f"the {name}'s mask: {mask.misses[0]}")
    left, right = reference.scope, candidate.scope
    own = {right.row: left.row, right.head: left.head, right.query: left.query, right.key: left.key}
    if (right.query.args[1], right.key.args[1]) != (left.query.args[1], left.key.args[1]):
        return OpenMasks("the models differ in the number of keys or queries of one step")
    visible = reference.visible, ex.substitute(candidate.visible, own)
    bias = reference.bias, ex.substitute(candidate.bias, own)
    found = _compared(visible, bias, left.key)
    if found is None:
        return EqualMasks("any")
    plain = _compared(tuple(map(unpadded, visible)), tuple(map(unpadded, bias)), left.key)
    if plain is None:
        return EqualMasks("unpadded")
    # Forms may read padding differently, which whole models show; a difference without padding is one.
    return _unlike(reference, plain) if isinstance(plain, Example) else OpenMasks(plain)


def _compared(visible: tuple[Expr, ...], bias: tuple[Expr, ...], key: Expr) -> Example | str | None:
    """Return an example at which two masks differ, or the reason that none is known; ``None`` if there is none."""
    differs = ex.negate(ex.equal(*visible))
    if differs is not ex.FALSE:
        other = ex.index("other key", key.args[1])
        seen = ex.substitute(visible[0], {key: other})
        answer = example_of(ex.conjunction(differs, seen))
        if answer != "never":
            return "no decision in time" if answer == "unknown" else answer
    shift = ex.subtract(*bias)
    return "numbers added to scores are written differently" if key in set(ex.walk(shift)) else None


def _unlike(reference: AttentionMask, example: Example) -> UnlikeMasks:
    values = {BATCH: 1, PAST: 0, LENGTH: 1} | dict(example.values)
    scope = reference.scope
    place = f"{values[LENGTH]} new positions after {values[PAST]}, attention {reference.node.name}"
    if values[BATCH] > 1:
        place = f"batch of {values[BATCH]}, row {values.get(scope.row, 0)}, {place}"
    query = values.get(scope.query, 0) + values[PAST]
    words = f"the query at position {query} sees the key at {values.get(scope.key, 0)} in one model alone"
    return UnlikeMasks(place, words)
