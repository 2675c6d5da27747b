"""Compare two models in lockstep over decode trajectories."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.thresholds import Threshold, find_thresholds
from graphpass.dialects.onnx.precision import in_f32, is_in_f16, without_bf16
from graphpass.errors import UnsupportedError, UsageError
from graphpass.ir.quantizers import rounds_activations
from graphpass.ir.values import weight_bytes
from graphpass.progress import advance, expect
from graphpass.runtime.devices.webgpu import LONGEST_IN_SOFTWARE, NAME, is_software
from graphpass.runtime.embedding_model import let_take_ids
from graphpass.verify.comparison import Comparison, Divergence, SequenceRun
from graphpass.verify.conditioning import after_nudges, after_reordered_sums
from graphpass.verify.consistency import contradictions, other_columns
from graphpass.verify.cut_outs import compare_cut_outs
from graphpass.verify.default_rounding import NO_ROOM, with_default_rounding
from graphpass.verify.difference import OutputComparer, PooledComparer, Tolerance, difference
from graphpass.verify.edits import Editor, Round
from graphpass.verify.pairing import with_names
from graphpass.verify.prompts import Prompt, Vocabulary, padded, padded_inside
from graphpass.verify.readings import (
    MOST_AT_ONCE,
    InParts,
    RowByRow,
    absorbs_left_padding,
    misreads_left_padding,
    rounds_rows_together,
    takes_positions,
    takes_several_of_each,
)
from graphpass.verify.request import ProofRequest
from graphpass.verify.rounded_caches import (
    ROUNDED,
    dequantized,
    rounds_alike,
    too_much,
    with_rounding,
    without_rounding,
)
from graphpass.verify.rounded_weights import rounded_to_f16, rounded_to_four_bits
from graphpass.verify.token_ids import compared_token_ids
from graphpass.verify.trajectories import Limit, Planner, Sides, Trajectory
from graphpass.verify.weights import damaged_weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from graphpass.ir.cache import ModelKind
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession


#: Length of the first prompt if the reference does not run the default one; others have up to 6 more tokens.
_SHORT = 2

#: Product of weight bytes and tokens that takes about ten seconds, and length whose masks and logits are below 1 GB.
_WORK, _MOST_TOKENS = 10**11, 1500

#: Errors of a candidate that are reported as a divergence: a failed run, and caches that cannot be edited.
_FAILED = ("GP322", "GP370")


def compare(reference: Model, candidate: Model, **settings: Any) -> Comparison:
    """Run two models on the same tokens and compare all outputs that are not caches.

    Each sequence is a reset, a prefill and steps with the reference's greedy choice. The sequences are:

    - a prompt, and a longer one, which detects state left from the first, with ``steps`` steps each;
    - three prompts of different lengths as a batch padded on the left, with ``steps`` steps;
    - a batch whose rows a beam search selects;
    - the batch of three padded on the right, with few steps;
    - with ``edits``: sequences whose caches are edited between steps (trim, rewind, reorder, snapshot, restore,
      select), with several new tokens in some steps. Models with an input ``tree_mask`` get trees of drafts; without
      it, each branch is run separately;
    - prompts around each length at which either graph changes its computation;
    - a prompt of the token ids that either graph compares tokens with.

    Results at padding are not compared. The following rules apply to padded batches; the result lists what was not
    compared:

    - If the reference has NaN at tokens of the batch, rows have equal lengths instead.
    - A reference that treats left padding as tokens (GroupQueryAttention, linear caches, or positions that it counts
      itself and the candidate reads from ``position_ids``) runs each row alone, unless the candidate does so, too. If
      both do and attention of padding enters linear caches, padding follows the first token of each row, so that its
      queries attend to a key.
    - With ``padding`` on the right the reference runs each row alone, since padding occupies cache slots in some
      models only. Rows have equal lengths if a model has linear caches, which padding enters, or rounds activations
      of all rows by one scale.
    - On a right-padded batch the candidate may agree with the reference's batch, or with its rows alone. If it agrees
      with neither, the models diverge; unless ``padding`` is on the left and the reference's batch and rows differ:
      the right-padded batch is then skipped.
    - With ``padding`` on the right, left padding is not compared.

    Other rules:

    - An ONNX reference in f16 or bf16 runs in f32, with unchanged weights. A candidate in f16 may agree with either
      the reference in f16 or the reference in f32.
    - Caches in integers are compared twice: dequantized, and unchanged; see `graphpass.verify.rounded_caches`.
    - If the reference fails with two rows, for example an export traced with one, all sequences have one row.
    - Values agree if ``|reference - candidate| <= atol + rtol * |reference|``; NaN agrees with NaN only.
    - A candidate that lacks an output, returns another shape, or fails to run diverges.

    Args:
        reference: The reference model.
        candidate: The candidate model.
        settings: Attributes of `ProofRequest`.

    Raises:
        UnsupportedError: GP320 to GP324, a model cannot be run, see `open_session` and `DecodeSession`; GP325, the size
            of its embeddings is not known; GP330, the models have no output in common; GP331, they have different fixed
            batch sizes; GP370, the reference has caches that cannot be edited.
        UsageError: GP250, ``prompt_ids``, ``steps`` or a tolerance is out of range; GP267, the sequences exceed caches
            of fixed capacity.
    """
    return compare_by(ProofRequest(**settings), reference, candidate)


def compare_by(request: ProofRequest, reference: Model, candidate: Model) -> Comparison:
    """Run two models as `compare`, with the settings as one object.

    Args:
        request: The settings.
        reference: The reference model.
        candidate: The candidate model.
    """
    run, opened = partial(_compare, request), request.opened
    wide = reference.analysis(dequantized), candidate.analysis(dequantized)
    in_four_bits = rounded_to_four_bits(*wide)
    wide = wide if in_four_bits is None else (in_four_bits[0], wide[1])
    proven = run(*wide)
    if not proven.passed and all(model.analysis(is_in_f16) for model in wide):
        # Only one of the models may round angles to f16.
        exact = run(*wide, exactly=True)
        proven = exact if exact.passed else proven
    stores_f16 = not proven.passed and Tolerance.for_models(*wide, device=request.device).rounded_to is None
    if stores_f16 and (rounded_reference := rounded_to_f16(*wide)) is not None:
        alike = run(rounded_reference[0], wide[1])
        words = (
            f"rounding of {rounded_reference[1]} weights to f16: the reference runs with them rounded alike; without, "
            f"logits differ by {proven.max_abs_difference:.2g} or more"
        )
        proven = replace(alike, skipped=(*alike.skipped, words)) if alike.passed else proven
    if in_four_bits is not None:
        words = f"rounding of {in_four_bits[1]} weights to 4 bits: the reference runs with them rounded alike"
        proven = replace(proven, skipped=(*proven.skipped, words))
    if request.is_strict and proven.passed and (damaged := damaged_weight(*wide)) is not None:
        proven = proven.diverging(*damaged)
    proven = with_names(proven, *wide)
    if request.examine and proven.passed:
        proven = with_default_rounding(proven, candidate, request)
    if wide[1] is candidate:
        return without_rounding(proven, reference)
    comparison = with_rounding(proven, reference, candidate, opened)
    if not comparison.passed:
        return comparison
    pooled = PooledComparer(Tolerance.for_models(candidate))
    base = reference if rounds_alike(reference, candidate) else wide[1]
    rounded = _compare(replace(request, examine=False), base, candidate, pooled=pooled)
    if rounded.passed and (reason := too_much(candidate, pooled.shares)) is not None:
        rounded = rounded.diverging(ROUNDED, reason)
    return comparison.followed_by(rounded)


def _compare(
    request: ProofRequest,
    reference: Model,
    candidate: Model,
    *,
    pooled: PooledComparer | None = None,
    exactly: bool = False,
) -> Comparison:
    steps, padding, opened = request.steps, request.padding, request.opened
    usual = Tolerance.for_models(reference, candidate, device=request.device)
    tolerance = request.tolerance(usual)
    widen = without_bf16 if candidate.analysis(is_in_f16) and not exactly else in_f32
    models = reference, candidate
    reference, candidate = reference.analysis(widen), candidate.analysis(without_bf16)
    sessions = opened(reference), opened(candidate, device=request.device, properties=request.properties)
    let_take_ids(reference, *sessions)
    both = reference, candidate
    misreading = [misreads_left_padding(model) for model in both]
    drafts = takes_several_of_each(candidate.graph)
    if drafts and all(misreading):
        # Results of this attention are unspecified after the number of new tokens that the mask counts.
        padding = "right"
    counting = takes_positions(candidate) and not takes_positions(reference)
    kinds = [model.analysis(analyze_caches).kind for model in both]
    enters = not {"hybrid", "linear"}.isdisjoint(kinds)
    alone = (padding == "right" and not enters) or ((misreading[0] or counting) and not misreading[1])
    inside = padding == "left" and all(misreading) and any(absorbs_left_padding(model) for model in both)
    pads = {"left": padded_inside if inside else padded} | ({} if enters else {"right": partial(padded, side="right")})
    entered = "linear caches"
    if any(rounds_rows_together(model.graph) for model in both):
        pads, entered = {}, "the scales by which activations of all rows are rounded"
    sides = Sides(pads, entered, padding, alone=alone)
    outputs = pooled or OutputComparer(tolerance)
    token_ids = tuple(sorted({token for model in both for token in model.analysis(compared_token_ids)}))

    def paired(left: DecodeSession, right: DecodeSession, compared: OutputComparer) -> _Lockstep:
        treated = () if request.is_proven else token_ids
        return _Lockstep(left, right, compared, sides, drafts=drafts, token_ids=treated)

    lockstep = paired(*sessions, outputs)

    def followed(lockstep: _Lockstep) -> Comparison:
        return lockstep.run(steps, request.prompt_ids, kinds if request.edits else [], around, _limit(request, both))

    def against_itself(copy: Model) -> Comparison:
        return followed(paired(sessions[0], opened(copy), OutputComparer(tolerance)))

    def pooled_with(copy: Model | None) -> tuple[Comparison, float]:
        compared, other = PooledComparer(tolerance), sessions[1] if copy is None else opened(copy)
        comparison = followed(paired(sessions[0], other, compared))
        return comparison, max(compared.shares.values(), default=0.0)

    try:
        thresholds = [threshold for model in both for threshold in model.analysis(find_thresholds)] if steps else []
        around = [] if request.is_proven else thresholds
        comparison = followed(lockstep)
        half = usual.rounded_to or ("f16" if candidate.analysis(is_in_f16) else None)
        if half is not None:
            comparison = after_nudges(comparison, reference, half, against_itself, pooled_with)
        if rounds_activations(reference.graph):
            comparison = after_reordered_sums(comparison, reference, pooled_with)
        if steps and comparison.passed and pooled is None:
            # The comparison needs no runtime, so the models keep their types; the reference may also be in f32.
            samples = not request.is_proven_with_padding
            result = compare_cut_outs(*models, thresholds, tolerance, comparison, samples=samples)
            if not result.passed and reference is not models[0]:
                result = compare_cut_outs(reference, models[1], thresholds, tolerance, comparison, samples=samples)
            comparison = result
        if reference is not models[0]:
            comparison = replace(comparison, skipped=(*comparison.skipped, WIDENED))
        if misreading[1] and not misreading[0] and padding == "left":
            comparison = _advised(comparison)
        return lockstep.examined(comparison, reference) if request.examine else comparison
    except UsageError as error:
        if error.id != "GP267":
            raise
        raise UsageError(
            "GP267",
            f"{error.message}, which a comparison over {steps} steps needs",
            "compare fewer steps or a shorter prompt (graphpass verify --steps, --prompt-ids), or make the model again "
            "with more room",
        ) from error


def _advised(comparison: Comparison) -> Comparison:
    """Add advice to a difference on padding that only the candidate misreads."""
    divergence = comparison.divergence
    if divergence is None or divergence.place is not None:
        return comparison
    if "padded on the left" not in comparison.sequences[divergence.sequence].description:
        return comparison
    advice = "the candidate reads each row from the front; to compare padding on the right, use --padding right"
    return replace(comparison, divergence=replace(divergence, reason=f"{divergence.reason}; {advice}"))


def _limit(request: ProofRequest, models: Iterable[Model]) -> Limit:
    """Return the limit on sequences around thresholds, by weight size and device."""
    largest = max(weight_bytes(model.graph) for model in models)
    tokens = min(_MOST_TOKENS, int(_WORK / max(largest, 1)))
    if request.device == NAME and is_software() and tokens > LONGEST_IN_SOFTWARE:
        return Limit(LONGEST_IN_SOFTWARE, f"SwiftShader computes prompts of more than {LONGEST_IN_SOFTWARE} wrongly")
    return Limit(tokens, "too much work for whole models")


#: Line on references in 16 bits that run in f32.
WIDENED = "rounding of the reference to 16 bits: it runs in f32, with unchanged weights"

_SLOTS = "right padding: both models use slots as positions, so all prompts of a batch must have one length"
_PADDED = "left padding: both models have other results for rows alone, so all prompts of a batch must have one length"


_Reference: TypeAlias = "DecodeSession | InParts | RowByRow"


class _Lockstep:
    def __init__(
        self,
        reference: DecodeSession,
        candidate: DecodeSession,
        outputs: OutputComparer,
        sides: Sides,
        *,
        drafts: bool,
        token_ids: Sequence[int],
    ) -> None:
        self._reference = reference
        self._row_by_row = RowByRow(reference)
        self._alone = sides.alone
        self._pads_right = sides.taken == "right"
        self._candidate = candidate
        self._outputs = outputs
        batch = _fixed_batch(reference, candidate)
        common = set(reference.outputs) & set(candidate.outputs)
        if not common:
            names = f"{', '.join(reference.outputs)} against {', '.join(candidate.outputs)}"
            raise UnsupportedError("GP330", f"the models have no output in common that is not a cache: {names}")
        self._last_only = reference.last_only or candidate.last_only
        self._vocabulary = Vocabulary.of(reference)
        # Keys of a dict, since the same line may be added at each step.
        self._skipped = dict.fromkeys(
            f"output {name}: only the candidate has it" for name in candidate.outputs if name not in common
        )
        if batch is None and (failure := _why_one_row(reference)) is not None:
            batch = 1
            self._skipped[f"several rows: the reference supports one: {failure}"] = None
        if self._last_only:
            name = "reference" if reference.last_only else "candidate"
            self._skipped[f"logits of all but the last of several tokens: the {name} computes none"] = None
        self._planner = Planner(reference, candidate, batch, self._vocabulary, sides, self._skipped, drafts, token_ids)

    def run(
        self,
        steps: int,
        prompt_ids: tuple[int, ...] | None,
        edited: list[ModelKind],
        thresholds: Sequence[Threshold],
        limit: Limit,
    ) -> Comparison:
        runs: list[SequenceRun] = []
        divergence = None
        try:
            trajectories = self._planner.plan(steps, prompt_ids, edited, thresholds, limit)
        except UnsupportedError as error:
            # A model traced with few tokens may not support longer prompts.
            if prompt_ids is not None or error.id != "GP322":
                raise
            self._skipped[f"longer prompts: the reference does not run them: {error.message}"] = None
            short = self._vocabulary.prompt(_SHORT)
            trajectories = self._planner.plan(steps, short, edited, thresholds, limit)
        expect(sum(1 + len(trajectory.rounds) for trajectory in trajectories), "steps")
        for trajectory in trajectories:
            advance(0, trajectory.prompt.description.removesuffix(", prompts"))
            try:
                run, divergence = self._run_either_way(len(runs), trajectory)
            except (UsageError, UnsupportedError) as error:
                # Errors here are the reference's, which may not support long prompts.
                if not (trajectory.is_long or runs) or error.id not in NO_ROOM:
                    raise
                self._skipped[f"{trajectory.prompt.description}: the reference has no room for it: {error.message}"] = (
                    None
                )
                continue
            runs += [] if run is None else [run]
            if divergence is not None:
                break
        return Comparison(tuple(runs), self._reference.outputs, self._outputs.largest, divergence, tuple(self._skipped))

    def examined(self, comparison: Comparison, reference: Model) -> Comparison:
        """Return ``comparison`` with warnings on inconsistencies of the reference."""
        try:
            sentences = contradictions(self._reference, self._outputs.tolerance, self._vocabulary)
            sentences += other_columns(reference)
        except (UsageError, UnsupportedError) as error:
            if error.id not in NO_ROOM:
                raise
            words = f"self-consistency of the reference: no room for the prompt: {error.message}"
            return replace(comparison, skipped=(*comparison.skipped, words))
        return replace(comparison, warnings=tuple(f"the reference contradicts itself: {text}" for text in sentences))

    def _run_either_way(self, sequence: int, trajectory: Trajectory) -> tuple[SequenceRun | None, Divergence | None]:
        """Run one sequence; on a divergence, again with the second way to run the reference.

        Returns:
            The run, and its divergence; no run if the sequence is skipped.
        """
        prompt, rounds, largest = trajectory.prompt, trajectory.rounds, self._outputs.largest
        first, other, words = self._readings(trajectory)
        run, divergence = self._follow(sequence, prompt, rounds, first)
        if divergence is None or other is None:
            return run, divergence
        if not trajectory.is_long and self._reads(prompt, divergence.step):
            return run, divergence
        apart, self._outputs.largest = self._outputs.largest, largest
        again, still = self._follow(sequence, prompt, rounds, other)
        if still is None:
            self._skipped |= {} if words is None else {words: None}
            return (run if trajectory.is_long else again), None
        if trajectory.is_other_side:
            self._outputs.largest = largest
            self._skipped["right padding: the reference has other results for rows alone"] = None
            return None, None
        self._outputs.largest = apart
        return run, divergence

    def _readings(self, trajectory: Trajectory) -> tuple[_Reference, _Reference | None, str | None]:
        """Return two ways to run the reference, and a line to report the second.

        The second is ``None`` if there is only one way. Padded batches may run row by row, long prompts in parts.
        """
        prompt = trajectory.prompt
        if trajectory.is_other_side:
            return self._reference, self._row_by_row, None
        is_padded = not prompt.mask.all()
        if self._alone and is_padded:
            return self._row_by_row, self._reference, _SLOTS if self._pads_right else _PADDED
        if not trajectory.is_long or prompt.ids.shape[1] <= MOST_AT_ONCE or not self._reference.has_caches:
            return self._reference, None, None
        words = f"the reference contradicts itself, and was fed {MOST_AT_ONCE} tokens at a time"
        return self._reference, InParts(self._reference), f"{prompt.description} at once: {words}"

    def _reads(self, prompt: Prompt, steps: int) -> bool:
        """Return whether the reference has equal logits for a padded batch and its rows alone.

        Args:
            prompt: The batch.
            steps: Number of steps after the prefill.
        """
        fed = [(prompt.ids, prompt.mask)]
        for step in range(steps):
            # The tokens of these steps are arbitrary.
            mask = np.pad(fed[-1][1], [(0, 0), (0, 1)], constant_values=1)
            fed.append((prompt.ids[:, [step]], mask))
        name = self._reference.logits_output
        self._row_by_row.reset()
        alone = [self._row_by_row.forward(ids, mask)[name].copy() for ids, mask in fed]
        self._reference.reset()
        for (ids, mask), expected in zip(fed, alone, strict=True):
            logits = self._reference.forward(ids, mask)[name]
            counts = mask[:, -logits.shape[1] :] != 0
            if difference(expected, logits, counts, self._outputs.tolerance).index is not None:
                return False
        return True

    def _follow(
        self, sequence: int, prompt: Prompt, rounds: tuple[Round, ...], reference: _Reference
    ) -> tuple[SequenceRun, Divergence | None]:
        reference.reset()
        self._candidate.reset()
        editors = Editor(self._reference), Editor(self._candidate)
        ids, mask = prompt.ids, prompt.mask
        reference_ids: list[list[int]] = [[] for _ in ids]
        candidate_ids: list[list[int]] = [[] for _ in ids]
        for step, now in enumerate((Round(), *rounds)):
            if step:
                reference_ids, candidate_ids = (now.selected(rows) for rows in (reference_ids, candidate_ids))
                fed = [(row[-1], *self._vocabulary.prompt(now.length - 1)) for row in reference_ids]
                ids = np.array(fed, np.int64)
                editors[0].apply(now.edits)
                # Sequences with edits of caches have no padding.
                edited = any(done.words for done in rounds[:step])
                past = np.ones((len(ids), self._reference.length), np.int64) if edited else mask
                mask = np.concatenate([past, np.ones_like(ids)], axis=1)
            positions = _slots(ids, mask) if prompt.counts_padding else None if step else prompt.positions
            if now.tree is not None:
                expected = editors[0].feed_tree(ids, now.tree)
            elif positions is not None:
                expected = self._reference.forward(ids, mask, positions)
            else:
                expected = reference.forward(ids, mask)
            expected = self._comparable(expected)
            _greedy(expected[self._reference.logits_output], mask, reference_ids)
            got = self._try_candidate(editors[1], now, ids, mask, positions)
            advance()
            if isinstance(got, str):
                divergence: Divergence | None = Divergence(sequence, step, None, (), None, None, got)
                break
            got = self._comparable(got)
            logits = got.get(self._reference.logits_output)
            if logits is not None and logits.shape == expected[self._reference.logits_output].shape:
                _greedy(logits, mask, candidate_ids)
            divergence = self._first_divergence((sequence, step), expected, got, mask[:, -ids.shape[1] :] != 0)
            if divergence is not None:
                break
        words = tuple(done.words for done in rounds[:step])
        if divergence is not None and step:
            divergence = replace(divergence, edits=words[-1])
        run = SequenceRun(
            prompt.description,
            prompt.rows,
            step,
            _frozen(reference_ids),
            _frozen(candidate_ids),
            words if any(words) else (),
        )
        return run, divergence

    def _try_candidate(
        self,
        editor: Editor,
        now: Round,
        ids: NDArray[np.int64],
        mask: NDArray[np.int64],
        positions: NDArray[np.int64] | None,
    ) -> dict[str, Array] | str:
        try:
            editor.apply(now.edits)
            if now.tree is not None:
                return editor.feed_tree(ids, now.tree)
            return self._candidate.forward(ids, mask, positions)
        except UnsupportedError as error:
            if error.id not in _FAILED:
                raise
            return f"the reference runs, the candidate does not: {error.message}"

    def _comparable(self, outputs: dict[str, Array]) -> dict[str, Array]:
        """Return ``outputs`` with logits of the last token alone, if a model computes no others."""
        name = self._reference.logits_output
        return outputs | {name: outputs[name][:, -1:]} if self._last_only and name in outputs else outputs

    def _first_divergence(
        self, place: tuple[int, int], expected: dict[str, Array], got: dict[str, Array], counts: NDArray[np.bool_]
    ) -> Divergence | None:
        for name, reference in expected.items():
            if name not in got:
                return Divergence(*place, name, (), None, None, "the candidate has no such output")
            per_token = _is_per_token(reference, counts)
            if not counts.all() and not per_token and reference.shape == got[name].shape:
                self._skipped[f"output {name} under padding: its axes are not [batch, length]"] = None
                continue
            considered = counts[:, -reference.shape[1] :] if per_token and not counts.all() else None
            divergence = self._outputs.compare(place, name, reference, got[name], considered)
            if divergence is not None:
                return divergence
        return None


def _fixed_batch(reference: DecodeSession, candidate: DecodeSession) -> int | None:
    fixed = {session.fixed_batch for session in (reference, candidate)} - {None}
    if len(fixed) > 1:
        raise UnsupportedError(
            "GP331",
            f"the reference's batch is fixed at {reference.fixed_batch}, the candidate's at {candidate.fixed_batch}",
        )
    return fixed.pop() if fixed else None


def _why_one_row(session: DecodeSession) -> str | None:
    """Return the error of ``session`` on a batch of two rows; ``None`` if it runs."""
    try:
        session.prefill(np.zeros((2, 2), np.int64))
    except UnsupportedError as error:
        if error.id != "GP322":
            raise
        return error.message
    return None


def _is_per_token(output: Array, counts: NDArray[np.bool_]) -> bool:
    """Return whether ``output`` is ``[batch, length, ...]``, or ``[batch, 1, ...]`` for the last position."""
    return output.ndim >= 2 and output.shape[0] == counts.shape[0] and output.shape[1] in (1, counts.shape[1])


def _slots(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the slots of the new ``ids`` as positions, int64 [batch, length]; padding counts."""
    total = mask.shape[1]
    return np.broadcast_to(np.arange(total - ids.shape[1], total), ids.shape)


def _greedy(logits: Array, mask: NDArray[np.int64], chosen: list[list[int]]) -> None:
    """Append the greedy choice at the last token of each row, padding aside, to ``chosen``."""
    new = mask[:, -logits.shape[1] :]
    last = new.shape[1] - 1 - new[:, ::-1].argmax(axis=1)
    for row, token in zip(chosen, logits[np.arange(len(last)), last].argmax(axis=-1).tolist(), strict=True):
        row.append(token)


def _frozen(rows: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in rows)
