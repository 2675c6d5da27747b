"""Compare masks and angles of two models at lengths beyond those of whole models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.attention.mask import LENGTH, AttentionMask
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.equations.angles import Angles, find_angles, find_learned_positions
from graphpass.analysis.equations.evaluation import SampledStep
from graphpass.analysis.equations.mask_operands import MaskOperands, find_mask_operands
from graphpass.analysis.equations.sampled import columns_at, step_at, visible_at
from graphpass.dialects.rounding import MOVES_BY
from graphpass.ir.bodies import inlined
from graphpass.ir.miss import MissError
from graphpass.progress import advance, expect
from graphpass.verify.angles import EqualAngles, OpenAngles, UnlikeAngles, compare_angles, unlike_columns
from graphpass.verify.comparison import LengthProof, Reach, Subject
from graphpass.verify.masks import EqualMasks, OpenMasks, UnlikeMasks, compare_masks, reads_padding
from graphpass.verify.numbers import unlike_numbers

if TYPE_CHECKING:
    from graphpass.analysis.equations.evaluation import Evaluation
    from graphpass.analysis.lengths.thresholds import Threshold
    from graphpass.analysis.symbolic.rounding import Array
    from graphpass.ir.model import Model
    from graphpass.verify.comparison import Comparison
    from graphpass.verify.difference import Tolerance

#: Prompts whose whole masks are computed: their queries are those of all shorter ones.
_PROMPTS = (24, 128, 512)
_SMALL, _LONGEST_PROMPT = _PROMPTS[0], _PROMPTS[-1]

#: Longest prompt around a number of the graphs: its masks take some 30 MB a tensor.
_LONGEST_AROUND = 2048

#: Pasts tried beside the numbers of the graphs, and the largest number's double if that is more.
_SAMPLED = (*(4**power for power in range(3, 8)), 2**15)

#: Scores of the largest step that an example is computed at.
_MOST_SCORES = 1 << 24

_OF_PROMPTS = OpenMasks("the keys' sizes are those of prompts without a past")

_BEYOND = "beyond the lengths of whole models"


def compare_cut_outs(
    reference: Model, candidate: Model, thresholds: Iterable[Threshold], tolerance: Tolerance, comparison: Comparison
) -> Comparison:
    """Compare the positions that each attention sees, and the angles of its query and keys.

    Attention is paired in execution order. Masks and angles are compared as expressions, for every batch, past and
    length; those that expressions do not decide, at sampled lengths.

    Args:
        reference: The model that is right.
        candidate: The model in question.
        thresholds: Lengths at which either changes.
        tolerance: Differences that count as equal.
        comparison: The comparison of both as whole models.

    Returns:
        ``comparison`` with its reach, or with the first difference.
    """
    thresholds = list(thresholds)
    models = inlined(reference), inlined(candidate)
    if (unlike := unlike_numbers(*models, tolerance)) is not None:
        return comparison.diverging(*unlike)
    pairs, skipped = _pairs(*models, tolerance)
    padding = next((pair for pair in pairs if isinstance(pair.seen, UnlikeMasks) and pair.seen.needs_padding), None)
    if padding is not None:
        assert isinstance(padding.seen, UnlikeMasks)
        return comparison.diverging(_place(padding.seen.step, padding.called), padding.seen.reason)
    pasts = [bool(analyze_caches(model).of_kind("kv")) for model in (reference, candidate)]
    for pair in pairs:
        for step in pair.examples():
            sides = [_Side(model, step, has_past=past) for model, past in zip(models, pasts, strict=True)]
            if words := pair.confirm(sides[0], sides[1], step, tolerance):
                return comparison.diverging(_place(step, pair.called), words)
    # A model without caches computes the whole square of each length.
    longest = None if all(pasts) else _LONGEST_PROMPT
    open_pairs = [pair for pair in pairs if pair.is_open]
    steps = _steps(thresholds, len(comparison.sequences[0].prompt_ids), longest) if open_pairs else []
    expect(len(steps), "lengths")
    for step in steps:
        sides = [_Side(model, step, has_past=past) for model, past in zip(models, pasts, strict=True)]
        for pair in open_pairs:
            words = pair.compare(sides[0], sides[1], step, tolerance)
            if words is not None:
                return comparison.diverging(_place(step, pair.called), words)
        advance()
    skipped += [words for pair in pairs for words in pair.skipped()]
    turned = [pair.turned for pair in pairs if isinstance(pair.turned, EqualAngles | OpenAngles)]
    reach = Reach(
        tuple(sorted({threshold.length for threshold in thresholds})),
        tuple((step.past, step.length) for step in steps),
        sum(pair.count for pair in pairs if pair.seen is not None and pair.mask_miss is None),
        sum(pair.count for pair in pairs if pair.seen is not None and pair.has_angles),
        min((verdict.rows for verdict in turned if verdict.rows), default=0),
        (_proof("masks", pairs), _proof("angles", pairs)),
    )
    return replace(comparison, reach=reach, skipped=(*comparison.skipped, *skipped))


def _place(step: SampledStep, called: str) -> str:
    return f"{step.length} new positions after {step.past}, {called}"


def _pairs(reference: Model, candidate: Model, tolerance: Tolerance) -> tuple[list[_Pair], list[str]]:
    """Return attention and sums of learned positions of both models in pairs, equal ones once."""
    views = [_views(model) for model in (reference, candidate)]
    learned = [model.analysis(find_learned_positions) for model in (reference, candidate)]
    skipped = [
        f"{name} {_BEYOND}: the reference has {len(left)}, the candidate {len(right)}"
        for name, (left, right) in (("masks of attention", views), ("tables of positions", learned))
        if len(left) != len(right)
    ]
    padded = all(any(reads_padding(view.mask) for view in side) for side in views)
    grows = any(cache.kind == "kv" for cache in reference.analysis(analyze_caches).caches)
    alike: dict[object, _Pair] = {}
    for left, right in zip(*views, strict=True) if len(views[0]) == len(views[1]) else ():
        key = left.key, right.key
        if key not in alike:
            of_prompts = grows and any(view.mask.scope.key.args[1] is LENGTH for view in (left, right))
            seen = _OF_PROMPTS if of_prompts else compare_masks(left.mask, right.mask, padded=padded)
            turned = compare_angles(left.angles, right.angles, tolerance)
            alike[key] = _Pair(left.angles, right.angles, turned, (left.mask_operands, right.mask_operands), seen)
        alike[key].count += 1
    pairs = list(alike.values())
    for first, second in zip(*learned, strict=True) if len(learned[0]) == len(learned[1]) else ():
        pairs.append(_Pair(first, second, compare_angles(first, second, tolerance), count=1))
    return pairs, skipped


@dataclass(frozen=True, slots=True)
class _View:
    """One attention of a model."""

    mask_operands: MaskOperands
    mask: AttentionMask
    angles: Angles

    @property
    def key(self) -> object:
        mask, angles = self.mask, self.angles
        return mask.visible, mask.bias, mask.scope, mask.misses, angles.forms, angles.misses


def _views(model: Model) -> list[_View]:
    analyses = (model.analysis(find) for find in (find_mask_operands, find_masks, find_angles))
    return [_View(*parts) for parts in zip(*analyses, strict=True)]


def _proof(subject: Subject, pairs: Iterable[_Pair]) -> LengthProof:
    """Count the pairs that are equal for every batch, past and length."""
    counts: Counter[str] = Counter()
    sampled: list[str] = []
    for pair in pairs:
        verdict = pair.seen if subject == "masks" else pair.turned
        if isinstance(verdict, EqualMasks | EqualAngles):
            counts[verdict.inputs] += pair.count
        elif verdict is not None:
            more = f" and {pair.count - 1} more" if pair.count > 1 else ""
            unconfirmed = "numbers do not confirm that " if isinstance(verdict, UnlikeMasks | UnlikeAngles) else ""
            sampled.append(f"{pair.called}{more}: {unconfirmed}{verdict.reason}")
    return LengthProof(subject, counts["any"], counts["unpadded"], tuple(sampled))


class _Side:
    """One model at one step; a model without caches is given all positions at once."""

    def __init__(self, model: Model, step: SampledStep, *, has_past: bool) -> None:
        self.step = step if has_past else SampledStep(step.batch, 0, step.total)
        self.evaluation: Evaluation = step_at(model, self.step)


@dataclass(slots=True)
class _Pair:
    """Attention, or sums of learned positions, of both models."""

    reference: Angles
    candidate: Angles
    turned: EqualAngles | UnlikeAngles | OpenAngles | None
    mask_operands: tuple[MaskOperands, MaskOperands] | None = None
    seen: EqualMasks | UnlikeMasks | OpenMasks | None = None
    count: int = 0
    mask_miss: str | None = None
    angle_miss: str | None = None

    @property
    def called(self) -> str:
        return f"{'attention' if self.mask_operands else 'sum'} {self.reference.node.name}"

    @property
    def has_angles(self) -> bool:
        return self.turned is not None and self.angle_miss is None

    @property
    def is_open(self) -> bool:
        return self._sees_open or self._turns_open

    @property
    def _sees_open(self) -> bool:
        return isinstance(self.seen, OpenMasks | UnlikeMasks) and self.mask_miss is None

    @property
    def _turns_open(self) -> bool:
        return isinstance(self.turned, OpenAngles | UnlikeAngles) and self.angle_miss is None

    def examples(self) -> Iterator[SampledStep]:
        """Yield steps at which expressions differ."""
        if isinstance(self.seen, UnlikeMasks):
            yield self.seen.step
        if isinstance(self.turned, UnlikeAngles):
            yield SampledStep(1, self.turned.first, self.turned.count)

    def confirm(self, left: _Side, right: _Side, step: SampledStep, tolerance: Tolerance) -> str | None:
        """Return how the two differ at an example, by expressions if numbers are too many."""
        if isinstance(self.seen, UnlikeMasks) and step == self.seen.step:
            if step.batch * step.length * step.total > _MOST_SCORES:
                return self.seen.reason
            return self._compare_masks(left, right, step, tolerance)
        assert isinstance(self.turned, UnlikeAngles)
        return self.turned.reason if self._compare_angles(left, right, step, tolerance) is not None else None

    def compare(self, left: _Side, right: _Side, step: SampledStep, tolerance: Tolerance) -> str | None:
        """Return the difference at one step, if expressions do not decide it."""
        words = self._compare_masks(left, right, step, tolerance) if self._sees_open else None
        return words or (self._compare_angles(left, right, step, tolerance) if self._turns_open else None)

    def _compare_masks(self, left: _Side, right: _Side, step: SampledStep, tolerance: Tolerance) -> str | None:
        assert self.mask_operands is not None
        sides = zip(self.mask_operands, (left, right), strict=True)
        try:
            seen = [
                visible_at(mask_operands, side.step, side.evaluation)[..., -step.length :, :]
                for mask_operands, side in sides
            ]
        except MissError as error:
            self.mask_miss = f"{_at(step)}: {error.miss}"
            return None
        kinds = {mask.value.element_type for mask_operands in self.mask_operands for mask in mask_operands.masks}
        rounding = max((2.0**exponent for kind, exponent in MOVES_BY.items() if kind in kinds), default=0.0)
        return _unlike_masks(seen[0], seen[1], step, tolerance, rounding)

    def _compare_angles(self, left: _Side, right: _Side, step: SampledStep, tolerance: Tolerance) -> str | None:
        sides = ((self.reference, left), (self.candidate, right))
        try:
            columns = [columns_at(angles, side.step, side.evaluation)[-step.length :] for angles, side in sides]
        except MissError as error:
            self.angle_miss = f"{_at(step)}: {error.miss}"
            return None
        if all(column.shape[1] for column in columns):
            return unlike_columns(columns[0], columns[1], step.past, tolerance)
        if any(column.shape[1] for column in columns):
            name = "reference" if columns[0].shape[1] else "candidate"
            self.angle_miss = f"only those of the {name} are found"
        return None

    def skipped(self) -> Iterator[str]:
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        if self.mask_miss is not None:
            yield f"masks of {self.called}{more} {_BEYOND}, {self.mask_miss}"
        if self.angle_miss is not None:
            yield f"angles of {self.called}{more} {_BEYOND}, {self.angle_miss}"


def _at(step: SampledStep) -> str:
    return f"from {step.total} positions on"


def _steps(thresholds: list[Threshold], batch: int, longest: int | None) -> list[SampledStep]:
    """Return steps of all small lengths, around each threshold, and sampled beyond, shortest first."""
    ends = [threshold.length for threshold in thresholds if threshold.ends] + ([] if longest is None else [longest])
    splits = [*((0, length) for length in _PROMPTS), (_SMALL - 3, 1), (_SMALL - 5, 5)]
    for number in sorted({threshold.length for threshold in thresholds}):
        splits += [(number - 1, 1), (max(number - 2, 0), 4), (2 * number - 2, 4)]
        splits += [(0, length) for length in (number + 1, 2 * number) if length <= _LONGEST_AROUND]
    largest = max((2 * threshold.length for threshold in thresholds if not threshold.ends), default=0)
    splits += [(past, 5) for past in (*_SAMPLED, *((largest,) if largest > _SAMPLED[-1] else ()))]
    splits += [(end - 4, 4) for end in ends if end > 4]
    steps = {SampledStep(batch, *split) for split in splits if not ends or sum(split) <= min(ends)}
    return sorted(steps, key=lambda step: (step.total, step.length))


def _unlike_masks(
    reference: Array, candidate: Array, step: SampledStep, tolerance: Tolerance, rounding: float
) -> str | None:
    """Return the first query that sees other positions; their type rounds by ``rounding``."""
    try:
        reference, candidate = np.broadcast_arrays(reference, candidate)
    except ValueError:
        return f"masks of shape {list(reference.shape)} and {list(candidate.shape)}"
    sees = np.isfinite(reference), np.isfinite(candidate)
    # Queries that see nothing are padding.
    unlike = (sees[0] != sees[1]) & sees[0].any(axis=-1, keepdims=True)
    if unlike.any():
        place = tuple(np.argwhere(unlike)[0][:-1])
        words = [_seen(mask[place]) for mask in sees]
        return f"the query at position {step.past + place[-1]} sees {words[0]}, the candidate's {words[1]}"
    both = sees[0]
    shown = [np.where(both, mask, 0) for mask in (reference, candidate)]
    last = both.shape[-1] - 1 - np.argmax(both[..., ::-1], axis=-1)[..., None]
    anchors = [np.take_along_axis(mask, last, axis=-1) for mask in shown]
    # Softmax ignores a number added to all.
    shifted = [mask - anchor for mask, anchor in zip(shown, anchors, strict=True)]
    apart = np.where(both, np.abs(shifted[0] - shifted[1]), 0)
    allowed = tolerance.absolute + tolerance.relative * np.abs(shifted[0])
    allowed = allowed + rounding * (np.abs(shown[0]) + np.abs(anchors[0]))
    if (apart > allowed).any():
        place = tuple(np.argwhere(apart > allowed)[0])
        numbers = f"{shifted[0][place]:.7g} to the score of key {place[-1]}, the candidate {shifted[1][place]:.7g}"
        return f"the query at position {step.past + place[-2]} adds {numbers}"
    return None


def _seen(row: Array) -> str:
    places = np.flatnonzero(row)
    if not len(places):
        return "no position"
    where = f"from {places[0]} to {places[-1]}"
    return f"{len(places)} positions {where}"
