"""Masks and angles that were compared without running the models, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Subject: TypeAlias = Literal["masks", "angles"]
"""The compared property of attention."""


@dataclass(frozen=True, slots=True)
class LengthProof:
    """Counts of attention blocks with equal masks or angles for every batch, past and length.

    Attributes:
        subject: Masks or angles; angles include learned positions, counted by the node that adds them.
        equal: Number of those equal for any padding and positions.
        unpadded: Number of those equal for batches without padding; padding was compared by running the models.
        sampled: Those that were compared at sampled steps only: attention, reason and node, as text.
    """

    subject: Subject
    equal: int
    unpadded: int
    sampled: tuple[str, ...]

    def in_words(self) -> Iterator[str]:
        """Yield a line for each count above 0 and each of ``sampled``."""
        counted = "masks of {} attention" if self.subject == "masks" else "angles or learned positions of {} nodes"
        if self.equal:
            yield f"{counted.format(self.equal)} equal for every batch, past and length"
        if self.unpadded:
            yield f"{counted.format(self.unpadded)} equal for every batch, past and length without padding"
        for name in self.sampled:
            yield f"{self.subject} compared at sampled lengths: {name}"

    def __add__(self, other: LengthProof) -> LengthProof:
        counts = self.equal + other.equal, self.unpadded + other.unpadded
        return LengthProof(self.subject, *counts, self.sampled + other.sampled)


@dataclass(frozen=True, slots=True)
class Reach:
    """Lengths at which masks and angles were compared without running the models.

    Attributes:
        thresholds: Lengths at which either graph changes its computation.
        steps: Past and length of each step at which masks and angles were computed; empty if all were compared as
            expressions.
        masks: Number of attention blocks whose masks were compared, as expressions or at all ``steps``.
        angles: Number of attention blocks with rotary embeddings, compared in the same ways.
        swept: Number of positions, from 0 on, at which angles were compared numerically; 0 if none were.
        proofs: Counts of masks and of angles that are equal for every batch, past and length.
    """

    thresholds: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    masks: int
    angles: int
    swept: int = 0
    proofs: tuple[LengthProof, ...] = ()

    def __add__(self, other: Reach) -> Reach:
        return Reach(
            tuple(sorted({*self.thresholds, *other.thresholds})),
            tuple(sorted({*self.steps, *other.steps})),
            self.masks + other.masks,
            self.angles + other.angles,
            max(self.swept, other.swept),
            tuple(left + right for left, right in zip(self.proofs, other.proofs, strict=True)),
        )
