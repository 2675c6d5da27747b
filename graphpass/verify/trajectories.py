"""Plan the sequences on which two models are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphpass.verify.edits import Round, beam_rounds, edit_rounds, row_rounds, tree_rounds
from graphpass.verify.prompts import pictured, rectangular

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphpass.analysis.lengths.thresholds import Threshold
    from graphpass.ir.cache import ModelKind
    from graphpass.runtime.sessions.session import DecodeSession
    from graphpass.verify.prompts import Prompt, Vocabulary

_PROMPT_LENGTH = 5

#: Maximum number of steps after a batch that is padded on the other side.
_OTHER_STEPS = 3

#: Length of each row of the padded batch, minus that of the first prompt: padding of 0, 9 and 2.
_UNEVEN = (6, -3, 4)

#: Rows of the batch that a beam search selects from.
_BEAMS = 5


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One sequence: a prompt after a reset, and steps.

    Attributes:
        prompt: The prompt.
        rounds: The steps.
        is_other_side: Whether padding is on the side that models need not support.
        is_long: Whether the reference may not support the length; the sequence is skipped then.
    """

    prompt: Prompt
    rounds: tuple[Round, ...]
    is_other_side: bool = False
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Sides:
    """The sides on which batches are padded.

    Attributes:
        pads: Functions that pad a batch, by side; a missing side is not padded.
        entered: Tensors that padding on a missing side would enter, as text.
        taken: Side on which the candidate supports padding.
        alone: Whether the reference runs each row of a padded batch separately.
        counted: Whether only the candidate reads an input of positions, which can count padding as the reference does.
    """

    pads: Mapping[str, Callable[[str, list[tuple[int, ...]]], Prompt]]
    entered: str
    taken: str
    alone: bool
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """The maximum length of sequences around thresholds.

    Attributes:
        tokens: Maximum number of tokens of all rows.
        reason: Reason that longer sequences are skipped, as text.
    """

    tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans prompts and edits that two sessions support.

    Attributes:
        reference: The reference's session.
        candidate: The candidate's session.
        batch: Fixed batch size of the sessions; ``None`` if it is dynamic.
        vocabulary: The source of prompts.
        sides: The sides on which batches are padded.
        skipped: Receives lines on sequences that are not run, with reasons.
        drafts: Whether a step of a batch may have several new tokens.
        token_ids: Token ids that either graph compares tokens with.
    """

    reference: DecodeSession
    candidate: DecodeSession
    batch: int | None
    vocabulary: Vocabulary
    sides: Sides
    skipped: dict[str, None]
    drafts: bool
    token_ids: Sequence[int]

    def plan(
        self,
        steps: int,
        prompt_ids: tuple[int, ...] | None,
        edited: Sequence[ModelKind],
        thresholds: Sequence[Threshold],
        limit: Limit,
    ) -> list[Trajectory]:
        """Return the sequences, in order.

        Args:
            steps: Number of greedy steps after each prompt.
            prompt_ids: Token ids of the first prompt; pseudo-random by default.
            edited: Kinds of both models if caches are edited, too; else empty.
            thresholds: Lengths at which either graph changes its computation.
            limit: Maximum length of sequences around thresholds.

        Raises:
            UsageError: GP250, ``prompt_ids`` is empty or has an id outside the vocabulary.
        """
        prompts = self._prompts(prompt_ids)
        length = prompts[0].ids.shape[1]
        trajectories = [Trajectory(prompt, (Round(),) * steps) for prompt in prompts]
        if steps:
            trajectories += [*self._rows(length), *self._other_side(prompts, steps)]
        if edited:
            trajectories += self._edited(length, edited)
        if steps:
            trajectories += [*self._around(thresholds, limit), *self._treated_apart(limit)]
        return trajectories

    def _prompts(self, prompt_ids: tuple[int, ...] | None) -> list[Prompt]:
        batch = self.batch
        rows = batch or 1
        vocabulary = self.vocabulary
        first = vocabulary.prompt(_PROMPT_LENGTH) if prompt_ids is None else vocabulary.check(prompt_ids)
        length = len(first)
        prompts = [
            rectangular("prompt", [first] * rows),
            rectangular("prompt", [vocabulary.prompt(length + 6) for _ in range(rows)]),
        ]
        maskless = [name for name, session in self._named_sessions() if not session.takes_mask]
        if batch is not None:
            self.skipped[f"padded batch: the batch is fixed at {batch}"] = None
        elif maskless:
            self.skipped[f"padding: no input attention_mask in the {' and the '.join(maskless)}"] = None
            prompts.append(self._even(length))
        elif self.sides.taken not in self.sides.pads:
            self.skipped[f"{self.sides.taken} padding: it enters {self.sides.entered}"] = None
            prompts.append(self._even(length))
        else:
            uneven = [vocabulary.prompt(max(length + more, 1)) for more in _UNEVEN]
            batch_of_rows = self.sides.pads[self.sides.taken](_batch_of(uneven), uneven)
            if not self.sides.alone and self._reference_gives_nan(batch_of_rows):
                self.skipped["left padding: the reference computes NaN after it"] = None
                batch_of_rows = self._even(length)
            prompts.append(batch_of_rows)
        axes = {session.axes for _, session in self._named_sessions()} - {()}
        counting = [name for name, session in self._named_sessions() if not session.takes_any_positions]
        if axes and counting:
            words = f"the runtime of the {' and the '.join(counting)} requires positions in order"
            self.skipped[f"positions of an image: {words}"] = None
        elif axes:
            fed = [vocabulary.prompt(length + 6) for _ in range(rows)]
            prompts.append(pictured("prompt", fed, max(axes)[0]))
        return prompts

    def _even(self, length: int) -> Prompt:
        """Return a batch as large as the padded one, with prompts of equal length."""
        rows = [self.vocabulary.prompt(length) for _ in _UNEVEN]
        return rectangular(_batch_of(rows), rows)

    def _other_side(self, prompts: list[Prompt], steps: int) -> list[Trajectory]:
        """Return a batch padded on the right, unless ``prompts`` has one; empty if unsupported."""
        if self.batch is not None or not all(session.takes_mask for _, session in self._named_sessions()):
            return []
        if self.sides.taken == "right":
            self.skipped["left padding: the candidate supports padding on the right"] = None
            return []
        if "right" not in self.sides.pads:
            self.skipped[f"right padding: it enters {self.sides.entered}"] = None
            return []
        rows = [row[: max(len(row) - 2 * place, 1)] for place, row in enumerate(prompts[2].rows)]
        behind = self.sides.pads["right"](_batch_of(rows), rows)
        return [Trajectory(behind, (Round(),) * min(steps, _OTHER_STEPS), is_other_side=True)]

    def _rows(self, length: int) -> list[Trajectory]:
        """Return a batch whose rows a beam search selects.

        Args:
            length: Length of the first prompt.
        """
        if self.batch == 1:
            self.skipped["rows selected by a beam search: the batch is fixed at 1"] = None
            return []
        if (miss := self._select_miss()) is not None:
            self.skipped[f"rows selected by a beam search: {miss}"] = None
            return []
        rows = [self.vocabulary.prompt(max(length - 1, 1)) for _ in range(self.batch or _BEAMS)]
        prompt = rectangular(f"rows, batch of {len(rows)}, prompts", rows)
        return [Trajectory(prompt, row_rounds(len(rows), fixed=bool(self.batch), drafts=self.drafts))]

    def _around(self, thresholds: Sequence[Threshold], limit: Limit) -> list[Trajectory]:
        """Return sequences around the thresholds of either model."""
        end = min((threshold.length for threshold in thresholds if threshold.ends), default=None)
        rows = self.batch or 1
        trajectories = []
        for length in sorted({threshold.length for threshold in thresholds if threshold.changes}):
            if end is not None and length > end:
                self.skipped[f"lengths around {length}: tables of the models end after {end} positions"] = None
                continue
            # Pairs of prompt length and steps: steps across the threshold, and prompts of the length and its double.
            counts = [(length - 1, 3), (length, 1), (2 * length, 1)]
            tried = [
                (count, steps if end is None else min(steps, end - count))
                for count, steps in counts
                if end is None or count <= end
            ]
            for count, steps in tried:
                if (count + steps) * rows > limit.tokens:
                    self.skipped[f"prompts of {count} tokens around {length}: {limit.reason}"] = None
                    continue
                prompt = rectangular(f"around {length}, prompt", [self.vocabulary.prompt(count) for _ in range(rows)])
                trajectories.append(Trajectory(prompt, (Round(),) * steps, is_long=True))
        return trajectories

    def _select_miss(self) -> str | None:
        misses = ((name, session.select_miss) for name, session in self._named_sessions())
        return next((f"the {name} {miss}" for name, miss in misses if miss is not None), None)

    def _treated_apart(self, limit: Limit) -> list[Trajectory]:
        """Return a prompt of the token ids that either graph compares tokens with."""
        ids = [token for token in self.token_ids if token < self.vocabulary.size]
        rows = self.batch or 1
        if not ids:
            return []
        if (len(ids) + 1) * rows > limit.tokens:
            self.skipped[f"{len(ids)} token ids that the graphs compare tokens with: {limit.reason}"] = None
            return []
        prompt = rectangular("token ids of the graphs, prompt", [tuple(ids)] * rows)
        return [Trajectory(prompt, (Round(),), is_long=True)]

    def _edited(self, length: int, kinds: Sequence[ModelKind]) -> list[Trajectory]:
        for (name, _), kind in zip(self._named_sessions(), kinds, strict=True):
            if kind != "kv":
                self.skipped[f"reorder: the {name} is of kind {kind}, and only kv caches have slots to move"] = None
        fixed = [name for name, session in self._named_sessions() if not session.moves_slots]
        if fixed:
            self.skipped[f"reorder: the runtime of the {' and the '.join(fixed)} cannot reorder slots"] = None
        rows = [self.vocabulary.prompt(length) for _ in range(self.batch or 1)]
        rounds = edit_rounds(length, moves=set(kinds) == {"kv"} and not fixed)
        trajectories = [Trajectory(rectangular("edits, prompt", rows), rounds)]
        if self.batch == 1:
            self.skipped["select: the batch is fixed at 1"] = None
        elif (miss := self._select_miss()) is not None:
            self.skipped[f"select: {miss}"] = None
        else:
            some = [self.vocabulary.prompt(length) for _ in range(self.batch or 2)]
            prompt = rectangular(f"edits, batch of {len(some)}, prompts", some)
            trajectories.append(Trajectory(prompt, beam_rounds(len(some))))
        sessions = self.reference, self.candidate
        takes_tree = any(session.takes_tree for session in sessions) and not any(
            session.last_only for session in sessions
        )
        if set(kinds) == {"kv"} and takes_tree:
            trajectories.append(Trajectory(rectangular("trees of drafts, prompt", rows), tree_rounds()))
        return trajectories

    def _reference_gives_nan(self, prompt: Prompt) -> bool:
        """Return whether the reference has NaN at tokens of a padded batch."""
        self.reference.reset()
        self.reference.forward(prompt.ids, prompt.mask)
        logits = self.reference.logits
        return bool(np.isnan(logits[prompt.mask[:, -logits.shape[1] :] != 0]).any())

    def _named_sessions(self) -> tuple[tuple[str, DecodeSession], ...]:
        return ("reference", self.reference), ("candidate", self.candidate)


def _batch_of(rows: Sequence[tuple[int, ...]]) -> str:
    return f"batch of {len(rows)}, prompts"
