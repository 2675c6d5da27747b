"""Run two models in lockstep over decode trajectories."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from graphpass.analysis.lengths.thresholds import Threshold
from graphpass.errors import UnsupportedError, UsageError
from graphpass.progress import advance, expect
from graphpass.verify.comparison import Comparison, Divergence, SequenceRun
from graphpass.verify.consistency import absorbed_padding, contradictions, other_columns
from graphpass.verify.default_rounding import NO_ROOM
from graphpass.verify.difference import OutputComparer, difference
from graphpass.verify.edits import Editor, Round
from graphpass.verify.prompts import Prompt, Vocabulary
from graphpass.verify.readings import MOST_AT_ONCE, InParts, RowByRow
from graphpass.verify.trajectories import Limit, Planner, Sides, Trajectory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphpass.ir.cache import ModelKind
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession


#: Length of the first prompt if the reference does not run the default one; others have up to 6 more tokens.
_SHORT = 2

#: Errors of a candidate that are reported as a divergence: a failed run, and caches that cannot be edited.
_FAILED = ("GP322", "GP370")

_SLOTS = "right padding: both models use slots as positions, so all prompts of a batch must have one length"
_PADDED = "left padding: both models have other results for rows alone, so all prompts of a batch must have one length"
_COUNTED = (
    "left padding: the reference has other results for rows alone, because it counts padding in positions; here the "
    "candidate's position_ids count it too"
)


_Reference: TypeAlias = "DecodeSession | InParts | RowByRow"


class Lockstep:
    """Two sessions that are fed the same tokens."""

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
        """Plan what both models run.

        Args:
            reference: Session of the source model.
            candidate: Session of the model that is compared with it.
            outputs: Compares outputs, and holds the largest difference.
            sides: The sides on which batches are padded.
            drafts: Whether a step of a batch may have several new tokens.
            token_ids: Token ids that either graph compares with; each is fed.

        Raises:
            UnsupportedError: GP330, the models have no output in common.
        """
        self._reference = reference
        self._row_by_row = RowByRow(reference)
        self._alone, self._counted = sides.alone, sides.counted
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
        """Run all trajectories, until the models differ.

        Args:
            steps: Greedy steps after each prefill.
            prompt_ids: Token ids of the first prompt; pseudo-random by default.
            edited: Kinds of both models, whose caches are edited between steps; empty for no edits.
            thresholds: Lengths at which either graph changes its computation; sequences have lengths around them.
            limit: Limit on the tokens of these sequences.

        Returns:
            The comparison, without structures and warnings.

        Raises:
            UnsupportedError: GP322, the reference does not run the first prompt.
            UsageError: GP250, ``prompt_ids`` is invalid; GP267, the caches have no room for the first prompt.
        """
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
        """Return a comparison with warnings on inconsistencies of the reference.

        Args:
            comparison: The comparison.
            reference: The source model.

        Raises:
            UsageError: As `DecodeSession.forward`, besides GP267.
            UnsupportedError: As `DecodeSession.forward`, besides GP322.
        """
        try:
            sentences = contradictions(self._reference, self._outputs.tolerance, self._vocabulary)
            sentences += other_columns(reference)
            # Candidates that agree with the padded batch misread it, too.
            if not (sentences or self._alone or self._pads_right):
                sentences += absorbed_padding(self._reference, reference, self._outputs.tolerance, self._vocabulary)
        except (UsageError, UnsupportedError) as error:
            if error.id not in NO_ROOM:
                raise
            words = f"self-consistency of the reference: no room for the prompt: {error.message}"
            return replace(comparison, skipped=(*comparison.skipped, words))
        return replace(comparison, warnings=tuple(f"the reference is inconsistent: {text}" for text in sentences))

    def _run_either_way(self, sequence: int, trajectory: Trajectory) -> tuple[SequenceRun | None, Divergence | None]:
        """Run one sequence; on a divergence, again with the second way to run the reference.

        Returns:
            The run, and its divergence; no run if the sequence is skipped.
        """
        prompt, rounds, largest = trajectory.prompt, trajectory.rounds, self._outputs.largest
        first, other, words = self._readings(trajectory)
        run, divergence = self._follow(sequence, prompt, rounds, first)
        if divergence is None:
            return run, None
        pools_padding = divergence.output in self._reference.pooled and not prompt.mask.all()
        other = self._row_by_row if pools_padding else other
        if other is None or (not trajectory.is_long and self._reads(prompt, divergence)):
            return run, divergence
        apart, self._outputs.largest = self._outputs.largest, largest
        again, still = self._follow(sequence, prompt, rounds, other)
        if still is None:
            self._skipped |= {} if words is None else {words: None}
            return (run if trajectory.is_long else again), None
        if self._counted and not (trajectory.is_other_side or prompt.mask.all()):
            self._outputs.largest = largest
            again, still = self._follow(sequence, replace(prompt, counts_padding=True), rounds, self._reference)
            if still is None:
                self._skipped[_COUNTED] = None
                return again, None
        if trajectory.is_other_side or pools_padding:
            self._outputs.largest = largest
            side = "left" if prompt.mask[:, -1].all() else "right"
            self._skipped[f"{side} padding: the reference has other results for rows alone"] = None
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
        words = f"the reference is inconsistent, and was fed {MOST_AT_ONCE} tokens at a time"
        return self._reference, InParts(self._reference), f"{prompt.description} at once: {words}"

    def _reads(self, prompt: Prompt, divergence: Divergence) -> bool:
        """Return whether the reference has equal results for a padded batch and its rows alone.

        Args:
            prompt: The batch.
            divergence: Its steps are run; its output is compared if it is pooled, otherwise the logits.
        """
        fed = [(prompt.ids, prompt.mask)]
        for step in range(divergence.step):
            # The tokens of these steps are arbitrary.
            mask = np.pad(fed[-1][1], [(0, 0), (0, 1)], constant_values=1)
            fed.append((prompt.ids[:, [step]], mask))
        pooled = divergence.output in self._reference.pooled
        name = str(divergence.output) if pooled else self._reference.logits_output
        self._row_by_row.reset()
        alone = [self._row_by_row.forward(ids, mask)[name].copy() for ids, mask in fed]
        self._reference.reset()
        for (ids, mask), expected in zip(fed, alone, strict=True):
            output = self._reference.forward(ids, mask)[name]
            counts = None if pooled else mask[:, -output.shape[1] :] != 0
            if difference(expected, output, counts, self._outputs.tolerance).index is not None:
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
            ignores_padding = per_token and name not in self._reference.pooled and not counts.all()
            considered = counts[:, -reference.shape[1] :] if ignores_padding else None
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
    """Return the error of ``session`` on a batch of two rows; ``None`` if it runs.

    Raises:
        UnsupportedError: Another error than GP322.
    """
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
