"""Compare masks and positional encodings of two models at all lengths, without running them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphpass.analysis.attention.find import find_score_masks
from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.equations.angles import Angles, find_angles, find_learned_positions
from graphpass.analysis.equations.evaluation import SampledStep
from graphpass.analysis.equations.sampled import columns_at, step_at, visible_at
from graphpass.analysis.symbolic.step import LENGTH
from graphpass.dialects.rounding import MOVES_BY
from graphpass.ir.bodies import inlined
from graphpass.ir.miss import Miss, MissError
from graphpass.progress import advance, expect
from graphpass.verify.angles import compare_angles, unlike_columns
from graphpass.verify.masks import compare_masks, reads_padding
from graphpass.verify.numbers import unlike_numbers
from graphpass.verify.reach import LengthProof, Reach, Subject
from graphpass.verify.verdicts import Equal, Open, Unlike, Verdict

if TYPE_CHECKING:
    from graphpass.analysis.attention.types import Mask
    from graphpass.analysis.equations.evaluation import Evaluation
    from graphpass.analysis.lengths.thresholds import Threshold
    from graphpass.analysis.symbolic.rounding import Array
    from graphpass.ir.model import Model
    from graphpass.verify.comparison import Comparison
    from graphpass.verify.difference import Tolerance

#: Lengths of prompts whose masks are computed; the causal mask of a prompt contains those of shorter prompts.
_PROMPTS = (24, 128, 512)
_SMALL, _LONGEST_PROMPT = _PROMPTS[0], _PROMPTS[-1]

#: Maximum length of prompts around a threshold; a mask of this length has about 30 MB.
_LONGEST_AROUND = 2048

#: Pasts that are tried in addition to those around thresholds.
_SAMPLED = (*(4**power for power in range(3, 8)), 2**15)

#: Maximum elements ``batch * length * total`` of a mask that is computed to confirm a counterexample.
_MOST_SCORES = 1 << 24

#: A number of positions that fits into the memory of no machine, so that a difference from there on cannot occur.
_IMPOSSIBLE = 1 << 40

_OF_PROMPTS = Open("the number of keys is that of prompts without a past")

_BEYOND = "beyond the lengths of whole models"


def compare_cut_outs(
    reference: Model,
    candidate: Model,
    thresholds: Iterable[Threshold],
    tolerance: Tolerance,
    comparison: Comparison,
    *,
    samples: bool = True,
) -> Comparison:
    """Compare masks and positional encodings of all attention blocks, and numbers such as scales.

    Attention blocks are paired in execution order. Masks and positional encodings are compared as expressions, for
    every batch, past and length. Those that this does not decide are computed and compared at sampled lengths.

    Args:
        reference: The reference model.
        candidate: The candidate model.
        thresholds: Lengths at which either graph changes its computation.
        tolerance: Tolerance of masks' biases, encodings and numbers.
        comparison: The comparison of the whole models.
        samples: Whether to compute those that expressions do not decide.

    Returns:
        ``comparison`` with `Comparison.reach`, or with the first difference.
    """
    thresholds = list(thresholds)
    models = inlined(reference), inlined(candidate)
    if (unlike := unlike_numbers(*models, tolerance)) is not None:
        return comparison.diverging(*unlike)
    pasts = [bool(analyze_caches(model).of_kind("kv")) for model in (reference, candidate)]

    def sides(step: SampledStep) -> tuple[_Side, _Side]:
        first, second = (_Side(model, step, has_past=past) for model, past in zip(models, pasts, strict=True))
        return first, second

    attended, learned, skipped = _pairs(*models, tolerance)
    pairs = [*attended, *learned]
    verdicts = [(pair, pair.verdict) for pair in pairs if isinstance(pair.verdict, Unlike)]
    examples = [(pair, verdict) for pair, verdict in verdicts if verdict.step.total < _IMPOSSIBLE]
    for pair, verdict in examples:
        if verdict.needs_padding:
            return comparison.diverging(_place(verdict.step, pair.called), verdict.reason)
    for pair, verdict in examples:
        if words := pair.confirmed(verdict, sides, tolerance):
            return comparison.diverging(_place(verdict.step, pair.called), words)
    # Without caches a mask has ``total * total`` elements instead of ``length * total``.
    longest = None if all(pasts) else _LONGEST_PROMPT
    open_pairs = [pair for pair in pairs if pair.is_open and samples]
    steps = _steps(thresholds, len(comparison.sequences[0].prompt_ids), longest) if open_pairs else []
    expect(len(steps), "lengths")
    for step in steps:
        both = sides(step)
        for pair in open_pairs:
            if words := pair.difference(both, step, tolerance):
                return comparison.diverging(_place(step, pair.called), words)
        advance()
    skipped += [f"{pair.subject} of {pair.listed} {_BEYOND}, {pair.miss}" for pair in pairs if pair.miss is not None]
    reach = Reach(
        tuple(sorted({threshold.length for threshold in thresholds})),
        tuple((step.past, step.length) for step in steps),
        sum(pair.count for pair in attended if pair.subject == "masks" and pair.miss is None),
        sum(pair.count for pair in attended if pair.subject == "angles" and pair.miss is None),
        min((rows for pair in pairs if (rows := getattr(pair.verdict, "rows", 0))), default=0),
        (_proof("masks", pairs, samples=samples), _proof("angles", pairs, samples=samples)),
    )
    return replace(comparison, reach=reach, skipped=(*comparison.skipped, *(skipped if samples else ())))


def _place(step: SampledStep, called: str) -> str:
    return f"{step.length} new positions after {step.past}, {called}"


def _pairs(reference: Model, candidate: Model, tolerance: Tolerance) -> tuple[list[_Pair], list[_Pair], list[str]]:
    """Pair attention blocks, and sums with learned positions.

    Returns:
        Pairs of attention, pairs of sums, and lines on parts without a pair.
    """
    views = [_views(model) for model in (reference, candidate)]
    learned = [model.analysis(find_learned_positions) for model in (reference, candidate)]
    skipped = [
        f"{name} {_BEYOND}: the reference has {len(left)}, the candidate {len(right)}"
        for name, (left, right) in (("masks of attention", views), ("tables of positions", learned))
        if len(left) != len(right)
    ]
    padded = all(any(reads_padding(mask) for _, mask, _ in side) for side in views)
    grows = any(cache.kind == "kv" for cache in reference.analysis(analyze_caches).caches)
    alike: dict[object, list[_Pair]] = {}
    for left, right in zip(*views, strict=True) if len(views[0]) == len(views[1]) else ():
        key = _key(left), _key(right)
        if key not in alike:
            _, masks, angles = zip(left, right, strict=True)
            of_prompts = grows and any(mask.scope.key.args[1] is LENGTH for mask in masks)
            seen = _OF_PROMPTS if of_prompts else compare_masks(*masks, padded=padded)
            called = f"attention {angles[0].node.name}"
            alike[key] = [_masks_of(called, (left, right), seen), *_angles_of(called, angles, tolerance)]
        for pair in alike[key]:
            pair.count += 1
    sums = [
        replace(pair, count=1)
        for both in (zip(*learned, strict=True) if len(learned[0]) == len(learned[1]) else ())
        for pair in _angles_of(f"sum {both[0].node.name}", both, tolerance)
    ]
    return [pair for pairs in alike.values() for pair in pairs], sums, skipped


_View: TypeAlias = "tuple[tuple[Mask, ...] | Miss, AttentionMask, Angles]"
"""The mask operands, effective mask and positional encodings of one attention block."""


def _views(model: Model) -> list[_View]:
    return list(zip(*map(model.analysis, (find_score_masks, find_masks, find_angles)), strict=True))


def _key(view: _View) -> object:
    _, mask, angles = view
    return mask.visible, mask.bias, mask.scope, mask.misses, angles.forms, angles.misses


def _proof(subject: Subject, pairs: Iterable[_Pair], *, samples: bool) -> LengthProof:
    """Return the counts of pairs by verdict, and lines on those that were sampled."""
    counts: Counter[str] = Counter()
    sampled: list[str] = []
    for pair in (pair for pair in pairs if pair.subject == subject):
        if isinstance(pair.verdict, Equal):
            counts[pair.verdict.inputs] += pair.count
        elif samples:
            unconfirmed = "computed values do not confirm that " if isinstance(pair.verdict, Unlike) else ""
            sampled.append(f"{pair.listed}: {unconfirmed}{pair.verdict.reason}")
    return LengthProof(subject, counts["any"], counts["unpadded"], tuple(sampled))


class _Side:
    """One model at one step; without caches, past and new positions are one prompt."""

    def __init__(self, model: Model, step: SampledStep, *, has_past: bool) -> None:
        self.step = step if has_past else SampledStep(step.batch, 0, step.total)
        self.evaluation: Evaluation = step_at(model, self.step)


@dataclass(slots=True)
class _Pair:
    """Corresponding masks or positional encodings of two models, in ``count`` attention blocks of equal expressions.

    ``at`` computes an operand at a step, with the new positions in the next to last axis; ``unlike`` compares two
    computed operands.
    """

    subject: Subject
    called: str
    operands: tuple[Any, Any]
    verdict: Verdict
    at: Callable[[Any, SampledStep, Evaluation], Array]
    unlike: Callable[[Array, Array, SampledStep, Tolerance], str | None]
    count: int = 0
    miss: str | None = None

    @property
    def listed(self) -> str:
        return f"{self.called} and {self.count - 1} more" if self.count > 1 else self.called

    @property
    def is_open(self) -> bool:
        return not isinstance(self.verdict, Equal) and self.miss is None

    def confirmed(
        self, verdict: Unlike, sides: Callable[[SampledStep], Iterable[_Side]], tolerance: Tolerance
    ) -> str | None:
        """Return the difference of the computed operands at a counterexample; ``None`` if they are equal.

        Steps whose masks have more than ``_MOST_SCORES`` elements are not computed: the solver's reason is returned.
        """
        step = verdict.step
        if step.batch * step.length * step.total > _MOST_SCORES:
            return verdict.reason
        words = self.difference(sides(step), step, tolerance)
        return verdict.reason if words and self.subject == "angles" else words

    def difference(self, sides: Iterable[_Side], step: SampledStep, tolerance: Tolerance) -> str | None:
        """Return the difference at one step; set ``miss`` if an operand cannot be computed."""
        if not self.is_open:
            return None
        try:
            first, second = (
                self.at(own, side.step, side.evaluation)[..., -step.length :, :]
                for own, side in zip(self.operands, sides, strict=True)
            )
        except MissError as error:
            self.miss = f"from {step.total} positions on: {error.miss}"
            return None
        present = [name for name, array in (("reference", first), ("candidate", second)) if array.shape[-1]]
        if len(present) == 1:
            self.miss = f"found in the {present[0]} alone"
        return self.unlike(first, second, step, tolerance) if len(present) == 2 else None


def _masks_of(called: str, views: tuple[_View, _View], seen: Verdict) -> _Pair:
    kinds = {mask.value.element_type for masks, *_ in views if not isinstance(masks, Miss) for mask in masks}
    rounding = max((2.0**exponent for kind, exponent in MOVES_BY.items() if kind in kinds), default=0.0)
    return _Pair("masks", called, views, seen, _visible_at, partial(_unlike_masks, rounding))


def _visible_at(view: _View, step: SampledStep, evaluation: Evaluation) -> Array:
    return visible_at(view[1].node, view[0], step, evaluation)


def _angles_of(called: str, angles: tuple[Angles, Angles], tolerance: Tolerance) -> list[_Pair]:
    """Return the pair of positional encodings; empty if neither model has any."""
    turned = compare_angles(*angles, tolerance)
    return [] if turned is None else [_Pair("angles", called, angles, turned, columns_at, _unlike_angles)]


def _unlike_angles(reference: Array, candidate: Array, step: SampledStep, tolerance: Tolerance) -> str | None:
    return unlike_columns(reference, candidate, step.past, tolerance)


def _steps(thresholds: list[Threshold], batch: int, longest: int | None) -> list[SampledStep]:
    """Return steps: of short prompts, around each threshold, and with sampled pasts, by ascending length.

    Args:
        thresholds: Lengths at which either graph changes its computation.
        batch: Number of rows of each step.
        longest: Maximum number of positions; ``None`` without a limit.
    """
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
    rounding: float, reference: Array, candidate: Array, step: SampledStep, tolerance: Tolerance
) -> str | None:
    """Return the first query that attends to other keys or has other biases.

    Args:
        rounding: Maximum relative rounding error of the masks' type; 0 for f32.
        reference: Added masks ``[..., queries, keys]``, -inf at hidden keys.
        candidate: Likewise, of a shape that broadcasts with the reference's.
        step: The lengths.
        tolerance: Tolerance of biases.
    """
    try:
        reference, candidate = np.broadcast_arrays(reference, candidate)
    except ValueError:
        return f"masks of shape {list(reference.shape)} and {list(candidate.shape)}"
    sees = np.isfinite(reference), np.isfinite(candidate)
    # Queries that attend to no key are padding.
    unlike = (sees[0] != sees[1]) & sees[0].any(axis=-1, keepdims=True)
    if unlike.any():
        place = tuple(np.argwhere(unlike)[0][:-1])
        words = [_seen(mask[place]) for mask in sees]
        return f"the query at position {step.past + place[-1]} attends to {words[0]}, the candidate's {words[1]}"
    both = sees[0]
    shown = [np.where(both, mask, 0) for mask in (reference, candidate)]
    last = both.shape[-1] - 1 - np.argmax(both[..., ::-1], axis=-1)[..., None]
    anchors = [np.take_along_axis(mask, last, axis=-1) for mask in shown]
    # Softmax is invariant to a constant added to all scores of a query.
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
