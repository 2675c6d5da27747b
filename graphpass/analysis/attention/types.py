"""What a decomposed attention is made of; `graphpass.analysis.attention.find` says which forms there are."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.ir.graph import Value

__all__ = ["Decomposed", "Mask", "NoMatchError", "Scale"]


@dataclass(frozen=True, slots=True)
class Scale:
    """A factor of the scores: ``value``, or its inverse where ``divides``. All its dimensions are 1."""

    value: Value
    divides: bool


@dataclass(frozen=True, slots=True)
class Mask:
    """What is masked: ``value`` is added to the scores, or selects (where ``keeps`` is not ``None``).

    Attributes:
        value: The tensor that is added, or the boolean condition.
        keeps: ``True`` where a true condition keeps a score, ``False`` where it masks it, ``None`` for an added mask.
        is_subtracted: Whether ``value`` is subtracted instead of added.
        scales: Factors that are applied to the scores when the mask is in them already.
        merges_heads: Whether its first of three axes is batch and heads in one, as in ``[batch * heads, 1, sequence]``.
    """

    value: Value
    keeps: bool | None = None
    is_subtracted: bool = False
    scales: tuple[Scale, ...] = ()
    merges_heads: bool = False


@dataclass(frozen=True, slots=True)
class Decomposed:
    """The parts of ``softmax(scale * query @ key^T + mask) @ value``; see `Attention` for what they mean."""

    output: Value
    query: Value
    key: Value
    value: Value
    key_is_transposed: bool
    scales: tuple[Scale, ...]
    masks: tuple[Mask, ...]
    guarded: bool
    sink: Value | None
    key_forms: tuple[Value, ...]
    value_forms: tuple[Value, ...]


class NoMatchError(Exception):
    """The reason why a Softmax is not plain attention."""
