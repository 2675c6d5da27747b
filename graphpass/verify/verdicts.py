"""Verdicts on masks or positional encodings of two attention blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphpass.analysis.equations.evaluation import SampledStep

Inputs: TypeAlias = Literal["any", "unpadded"]
"""The inputs for which masks or encodings are equal: any, or those without padding."""


@dataclass(frozen=True, slots=True)
class Equal:
    """Equality for every batch, past and length.

    Attributes:
        inputs: The inputs for which they are equal.
        rows: Number of rows of the shortest table, which limits positions; 0 without tables.
    """

    inputs: Inputs
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Unlike:
    """A difference, with a counterexample.

    Attributes:
        step: Lengths of the counterexample.
        reason: The difference at this step, as text.
        needs_padding: Whether the difference requires padded rows.
    """

    step: SampledStep
    reason: str
    needs_padding: bool = False


@dataclass(frozen=True, slots=True)
class Open:
    """Equality that is not decided.

    Attributes:
        reason: The reason, with the node, as text.
        rows: Number of positions, from 0 on, at which encodings are equal.
    """

    reason: str
    rows: int = 0


Verdict: TypeAlias = Equal | Unlike | Open
