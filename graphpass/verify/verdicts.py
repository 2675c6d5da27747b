"""Verdicts on the masks, or the angles, of two attentions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphpass.analysis.equations.evaluation import SampledStep

Inputs: TypeAlias = Literal["any", "unpadded"]
"""The inputs that masks or angles are equal for: any, or those without padding."""


@dataclass(frozen=True, slots=True)
class Equal:
    """Both are equal at every step that both models have.

    Attributes:
        inputs: The inputs for which they are.
        rows: Number of rows of the shortest table, beyond which positions have none; 0 without tables.
    """

    inputs: Inputs
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Unlike:
    """Both differ at an example.

    Attributes:
        step: Lengths of the example.
        reason: The difference there.
        needs_padding: Whether they differ for padded rows alone.
    """

    step: SampledStep
    reason: str
    needs_padding: bool = False


@dataclass(frozen=True, slots=True)
class Open:
    """Equality is not decided.

    Attributes:
        reason: The part that is not known, with its node.
        rows: Number of positions, from 0 on, at which angles are equal.
    """

    reason: str
    rows: int = 0


Verdict: TypeAlias = Equal | Unlike | Open
