"""Compare masks and angles of two models at lengths beyond those of whole models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.attention.mask import LENGTH
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.equations.sight import (
    Sight,
    columns_at,
    find_learned_positions,
    find_sights,
    step_at,
    visible_at,
)
from graphpass.analysis.equations.steps import Step
from graphpass.ir.bodies import inlined
from graphpass.ir.pattern import MissError
from graphpass.progress import advance, expect
from graphpass.verify.comparison import Divergence, MaskProof, Reach
from graphpass.verify.masks import EqualMasks, OpenMasks, UnlikeMasks, compare_masks, reads_padding
from graphpass.verify.numbers import unlike_numbers

if TYPE_CHECKING:
    from graphpass.analysis.equations.evaluation import Evaluation
    from graphpass.analysis.equations.operators import Array
    from graphpass.analysis.lengths.turns import Turn
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

#: Rounding of an angle in f32, for each position.
_ANGLE = 4e-7

#: Positions whose angles are computed at once, and the number compared if no table ends.
_SWEPT, _MOST_SWEPT = 2048, 2**13

#: Numbers that the search for equal columns takes at once.
_PAIRED = 2**22

#: Numbers of a position that are compared as a set; tables of learned positions have more, and one form.
_MOST_COLUMNS = 1024

#: Scores of the largest step that an example is computed at.
_MOST_SCORES = 1 << 24

_BEYOND = "beyond the lengths of whole models"


def compare_cut_outs(
    reference: Model, candidate: Model, turns: Iterable[Turn], tolerance: Tolerance, comparison: Comparison
) -> Comparison:
    """Compare the positions that each attention sees, and the angles of its query and keys.

    Attention is paired in execution order. Whatever cannot be computed ahead is reported as not compared.

    Args:
        reference: The model that is right.
        candidate: The model in question.
        turns: Lengths at which either changes.
        tolerance: Differences that count as equal.
        comparison: The comparison of both as whole models.

    Returns:
        ``comparison`` with its reach, or with the first difference.
    """
    turns = list(turns)
    models = inlined(reference), inlined(candidate)
    if (unlike := unlike_numbers(*models, tolerance)) is not None:
        return _diverging(comparison, *unlike)
    sights = [model.analysis(find_sights) for model in models]
    tables = [model.analysis(find_learned_positions) for model in models]
    skipped = [
        f"{name} {_BEYOND}: the reference has {len(left)}, the candidate {len(right)}"
        for name, (left, right) in (("masks of attention", sights), ("tables of positions", tables))
        if len(left) != len(right)
    ]
    alike: dict[object, _Pair] = {}
    for left, right in zip(*sights, strict=True) if len(sights[0]) == len(sights[1]) else ():
        alike.setdefault((left.signature, right.signature), _Pair(left, right)).count += 1
    pairs = list(alike.values())
    if len(tables[0]) == len(tables[1]):
        pairs += [_Pair(left, right, 1, sees=False) for left, right in zip(*tables, strict=True)]
    proof = _proof_of_masks(*models)
    if isinstance(proof, UnlikeMasks) and proof.needs_padding:
        return _diverging(comparison, _place(proof.step, f"attention {proof.attention}"), proof.reason)
    pasts = [bool(analyze_caches(model).of_kind("kv")) for model in (reference, candidate)]
    # A model without caches computes the whole square of each length.
    longest = None if all(pasts) else _LONGEST_PROMPT
    steps = _steps(turns, len(comparison.sequences[0].prompt_ids), longest) if pairs else []
    if isinstance(proof, UnlikeMasks) and proof.step.batch * proof.step.length * proof.step.total <= _MOST_SCORES:
        steps.insert(0, proof.step)
    expect(len(steps), "lengths")
    for step in steps:
        sides = [_Side(model, step, has_past=past) for model, past in zip(models, pasts, strict=True)]
        for pair in pairs:
            words = pair.compare(sides[0], sides[1], step, tolerance)
            if words is not None:
                return _diverging(comparison, _place(step, pair.called), words)
        advance()
    if isinstance(proof, UnlikeMasks):
        if proof.step not in steps:
            return _diverging(comparison, _place(proof.step, f"attention {proof.attention}"), proof.reason)
        proof = MaskProof(0, 0, (f"attention {proof.attention}: numbers do not confirm that {proof.reason}",))
    swept: list[int] = []
    for pair in pairs:
        if pair.has_angles:
            count, words = _sweep(pair, models, turns, tolerance)
            if words is not None:
                return _diverging(comparison, f"position {count} and later ones, {pair.called}", words)
            swept.append(count)
    skipped += [words for pair in pairs for words in pair.skipped()]
    reach = Reach(
        tuple(sorted({turn.length for turn in turns})),
        tuple((step.past, step.length) for step in steps),
        sum(pair.count for pair in pairs if pair.sees and pair.mask_miss is None),
        sum(pair.count for pair in pairs if pair.sees and pair.has_angles),
        min(swept, default=0),
        proof,
    )
    return replace(comparison, reach=reach, skipped=(*comparison.skipped, *skipped))


def _place(step: Step, called: str) -> str:
    return f"{step.length} new positions after {step.past}, {called}"


def _proof_of_masks(reference: Model, candidate: Model) -> MaskProof | UnlikeMasks:
    """Compare the masks of all attention for every step; equal pairs once."""
    masks = [model.analysis(find_masks) for model in (reference, candidate)]
    if len(masks[0]) != len(masks[1]):
        return MaskProof(0, 0, ())
    padded = all(any(map(reads_padding, side)) for side in masks)
    grows = any(cache.kind == "kv" for cache in reference.analysis(analyze_caches).caches)
    known: dict[object, EqualMasks | UnlikeMasks | OpenMasks] = {}
    counts: Counter[str] = Counter()
    sampled: list[str] = []
    for left, right in zip(*masks, strict=True):
        key = (left.visible, left.bias, left.scope, right.visible, right.bias, right.scope, left.misses, right.misses)
        if key not in known and any(grows and mask.scope.key.args[1] is LENGTH for mask in (left, right)):
            known[key] = OpenMasks("the keys' sizes are those of prompts without a past")
        elif key not in known:
            known[key] = compare_masks(left, right, padded=padded)
        found = known[key]
        if isinstance(found, UnlikeMasks):
            return found
        if isinstance(found, EqualMasks):
            counts[found.inputs] += 1
        else:
            sampled.append(f"attention {left.node.name}: {found.reason}")
    return MaskProof(counts["any"], counts["unpadded"], tuple(sampled))


def _diverging(comparison: Comparison, place: str, words: str) -> Comparison:
    where = Divergence(len(comparison.sequences), 0, None, (), None, None, words, place=place)
    return replace(comparison, divergence=where)


class _Side:
    """One model at one step; a model without caches is given all positions at once."""

    def __init__(self, model: Model, step: Step, *, has_past: bool) -> None:
        self.step = step if has_past else Step(step.batch, 0, step.total)
        self.evaluation: Evaluation = step_at(model, self.step)


@dataclass(slots=True)
class _Pair:
    reference: Sight
    candidate: Sight
    count: int = 0
    sees: bool = True
    mask_miss: str | None = None
    angle_miss: str | None = None
    has_angles: bool = False

    @property
    def called(self) -> str:
        return f"{'attention' if self.sees else 'sum'} {self.reference.node.name}"

    def compare(self, left: _Side, right: _Side, step: Step, tolerance: Tolerance) -> str | None:
        """Return how the two differ at one step."""
        sides = ((self.reference, left), (self.candidate, right))
        if self.sees and self.mask_miss is None:
            try:
                seen = [visible_at(sight, side.step, side.evaluation)[..., -step.length :, :] for sight, side in sides]
                if words := _unlike_masks(seen[0], seen[1], step, tolerance):
                    return words
            except MissError as error:
                self.mask_miss = f"{_at(step)}: {error.miss}"
        return self.compare_angles(left, right, step, tolerance) if self.angle_miss is None else None

    def compare_angles(self, left: _Side, right: _Side, step: Step, tolerance: Tolerance) -> str | None:
        """Return how the numbers differ that positions give query and keys at one step."""
        sides = ((self.reference, left), (self.candidate, right))
        try:
            columns = [columns_at(sight, side.step, side.evaluation)[-step.length :] for sight, side in sides]
        except MissError as error:
            self.angle_miss = f"{_at(step)}: {error.miss}"
            return None
        if all(one.shape[1] for one in columns):
            self.has_angles = True
            return _unlike_columns(columns[0], columns[1], step, tolerance)
        if any(one.shape[1] for one in columns):
            name = "reference" if columns[0].shape[1] else "candidate"
            self.angle_miss = f"only those of the {name} are found"
        return None

    def skipped(self) -> Iterator[str]:
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        if self.mask_miss is not None:
            yield f"masks of {self.called}{more} {_BEYOND}, {self.mask_miss}"
        if self.angle_miss is not None:
            yield f"angles of {self.called}{more} {_BEYOND}, {self.angle_miss}"


def _at(step: Step) -> str:
    return f"from {step.total} positions on"


def _steps(turns: list[Turn], batch: int, longest: int | None) -> list[Step]:
    """Return steps of all small lengths, around each turn, and sampled beyond, shortest first."""
    ends = [turn.length for turn in turns if turn.ends] + ([] if longest is None else [longest])
    splits = [*((0, length) for length in _PROMPTS), (_SMALL - 3, 1), (_SMALL - 5, 5)]
    for number in sorted({turn.length for turn in turns}):
        splits += [(number - 1, 1), (max(number - 2, 0), 4), (2 * number - 2, 4)]
        splits += [(0, length) for length in (number + 1, 2 * number) if length <= _LONGEST_AROUND]
    largest = max((2 * turn.length for turn in turns if not turn.ends), default=0)
    splits += [(past, 5) for past in (*_SAMPLED, *((largest,) if largest > _SAMPLED[-1] else ()))]
    splits += [(end - 4, 4) for end in ends if end > 4]
    found = {Step(batch, *split) for split in splits if not ends or sum(split) <= min(ends)}
    return sorted(found, key=lambda step: (step.total, step.length))


def _sweep(pair: _Pair, models: tuple[Model, Model], turns: list[Turn], tolerance: Tolerance) -> tuple[int, str | None]:
    """Compare the angles of each position up to the end of a table.

    Returns:
        The number of positions that agree, and how the next ones differ.
    """
    alone = replace(pair, angle_miss=None)
    end = min((turn.length for turn in turns if turn.ends), default=_MOST_SWEPT)
    past, size = 0, _SWEPT
    while past < end and size:
        step = Step(1, past, min(size, end - past))
        left, right = (_Side(model, step, has_past=True) for model in models)
        words = alone.compare_angles(left, right, step, tolerance)
        if words is not None:
            return past, words
        if alone.angle_miss is None:
            past = step.total
        else:  # a table ends among these positions
            alone.angle_miss, size = None, size // 2
    return past, None


def _unlike_masks(reference: Array, candidate: Array, step: Step, tolerance: Tolerance) -> str | None:
    """Return the first query that sees other positions, in words."""
    try:
        reference, candidate = np.broadcast_arrays(reference, candidate)
    except ValueError:
        return f"masks of shape {list(reference.shape)} and {list(candidate.shape)}"
    sees = np.isfinite(reference), np.isfinite(candidate)
    # Queries that see nothing are padding.
    unlike = (sees[0] != sees[1]) & sees[0].any(axis=-1, keepdims=True)
    if unlike.any():
        place = tuple(np.argwhere(unlike)[0][:-1])
        words = [_seen(one[place]) for one in sees]
        return f"the query at position {step.past + place[-1]} sees {words[0]}, the candidate's {words[1]}"
    both = sees[0]
    apart = np.abs(np.subtract(reference, candidate, where=both, out=np.zeros(both.shape)))
    allowed = tolerance.absolute + tolerance.relative * np.abs(reference, where=both, out=np.zeros(both.shape))
    if (apart > allowed).any():
        place = tuple(np.argwhere(apart > allowed)[0])
        numbers = f"{reference[place]:.7g} to the score of key {place[-1]}, the candidate {candidate[place]:.7g}"
        return f"the query at position {step.past + place[-2]} adds {numbers}"
    return None


def _seen(row: Array) -> str:
    places = np.flatnonzero(row)
    if not len(places):
        return "no position"
    where = f"from {places[0]} to {places[-1]}"
    return f"{len(places)} positions {where}"


def _unlike_columns(reference: Array, candidate: Array, step: Step, tolerance: Tolerance) -> str | None:
    """Return how numbers of positions differ as sets: halves may be written twice or negated."""
    allowed = max(tolerance.absolute, _ANGLE * step.total)
    if reference.shape == candidate.shape and np.allclose(reference, candidate, rtol=0, atol=allowed):
        return None
    if max(reference.shape[1], candidate.shape[1]) > _MOST_COLUMNS:
        return f"what positions from {step.past} on add or multiply differs"
    left, right = (np.unique(one.round(12), axis=1) for one in (reference, candidate))
    for name, one, other in (("reference", left, right), ("candidate", right, left)):
        column = _unmatched(one, other, allowed)
        if column is not None:
            numbers = " ".join(f"{number:.6g}" for number in column[:3])
            return f"the {name} alone multiplies query or keys at positions from {step.past} on by {numbers}"
    return None


def _unmatched(columns: Array, others: Array, allowed: float) -> Array | None:
    """Return the first of ``columns`` that is none of ``others``, whatever their signs."""
    count = max(1, min(len(columns), _PAIRED // max(columns.shape[1] * others.shape[1], 1)))
    # A few rows choose the likeliest column, all rows decide.
    some = np.linspace(0, len(columns) - 1, count).astype(int)
    nearest = np.minimum(*_distances(columns[some], others[some])).argmin(axis=1)
    apart = np.minimum(*(np.abs(columns - sign * others[:, nearest]).max(axis=0) for sign in (1, -1)))
    for place in np.flatnonzero(apart > allowed):
        column = columns[:, [place]]
        if np.minimum(*(np.abs(column - sign * others).max(axis=0) for sign in (1, -1))).min() > allowed:
            return column[:, 0]
    return None


def _distances(left: Array, right: Array) -> tuple[Array, Array]:
    """Return the largest distances of each column to each other, and to each negated."""
    return (
        np.abs(left[:, :, None] - right[:, None]).max(axis=0),
        np.abs(left[:, :, None] + right[:, None]).max(axis=0),
    )
