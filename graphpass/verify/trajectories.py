"""Choose the sequences on which two models are compared."""

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

#: Steps after a batch that is padded on the other side.
_OTHER_STEPS = 3

#: Tokens of each padded row, added to those of the first prompt: 9 entries of padding in the second, 2 in the third.
_UNEVEN = (6, -3, 4)

#: Rows of the batch that a beam search selects from.
_BEAMS = 5


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Holds one sequence: a prompt after a reset, and steps.

    Attributes:
        prompt: The prompt.
        rounds: The steps.
        is_other_side: Whether padding stands on a side that the reference need not take.
        is_long: Whether models may have no room for it.
    """

    prompt: Prompt
    rounds: tuple[Round, ...]
    is_other_side: bool = False
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Sides:
    """Describes where padding may stand.

    Attributes:
        pads: Ways to pad a batch, by the side on which padding stands.
        entered: Tensors that padding would enter, on sides without a way.
        taken: Side on which the candidate is to take padding.
        alone: Whether the reference runs each row of a padded batch alone.
    """

    pads: Mapping[str, Callable[[str, list[tuple[int, ...]]], Prompt]]
    entered: str
    taken: str
    alone: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits the length of compared sequences.

    Attributes:
        tokens: Number of tokens of the longest sequence.
        reason: Why longer ones are not run.
    """

    tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class Planner:
    """Chooses prompts and edits that two sessions take, and notes what they do not take.

    Attributes:
        reference: The session that is right.
        candidate: The session in question.
        batch: Batch that one of them fixes.
        vocabulary: Chooses tokens.
        sides: Where padding may stand.
        skipped: Gets what is not compared, with reasons.
        drafts: Whether rows side by side are fed several tokens at a step, too.
        token_ids: Token ids that either graph treats apart.
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
            steps: Greedy steps after prompts.
            prompt_ids: The first prompt; any by default.
            edited: Kinds of both models if caches are edited as well.
            thresholds: Lengths at which either model changes.
            limit: Longest sequence of a certain length.

        Raises:
            UsageError: GP250, ``prompt_ids`` is not a prompt.
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
            self.skipped[f"padding: it cannot be hidden from the {' and the '.join(maskless)}"] = None
            prompts.append(self._even(length))
        elif self.sides.taken not in self.sides.pads:
            self.skipped[f"{self.sides.taken} padding: it enters {self.sides.entered}"] = None
            prompts.append(self._even(length))
        else:
            uneven = [vocabulary.prompt(max(length + more, 1)) for more in _UNEVEN]
            batch_of_rows = self.sides.pads[self.sides.taken](_batch_of(uneven), uneven)
            if not self.sides.alone and self._reference_gives_nan(batch_of_rows):
                self.skipped["left padding: the reference gives NaN after it"] = None
                batch_of_rows = self._even(length)
            prompts.append(batch_of_rows)
        axes = {session.axes for _, session in self._named_sessions()} - {()}
        counting = [name for name, session in self._named_sessions() if not session.takes_any_positions]
        if axes and counting:
            words = f"the runtime of the {' and the '.join(counting)} takes positions in order"
            self.skipped[f"positions of an image: {words}"] = None
        elif axes:
            fed = [vocabulary.prompt(length + 6) for _ in range(rows)]
            prompts.append(pictured("prompt", fed, max(axes)[0]))
        return prompts

    def _even(self, length: int) -> Prompt:
        """Return as many prompts as a padded batch has, of one length."""
        rows = [self.vocabulary.prompt(length) for _ in _UNEVEN]
        return rectangular(_batch_of(rows), rows)

    def _other_side(self, prompts: list[Prompt], steps: int) -> list[Trajectory]:
        """Return the batch among ``prompts`` padded on the right, if it is not."""
        if self.batch is not None or not all(session.takes_mask for _, session in self._named_sessions()):
            return []
        if self.sides.taken == "right":
            self.skipped["left padding: the candidate is to take padding on the right"] = None
            return []
        if "right" not in self.sides.pads:
            self.skipped[f"right padding: it enters {self.sides.entered}"] = None
            return []
        rows = [row[: max(len(row) - 2 * place, 1)] for place, row in enumerate(prompts[2].rows)]
        behind = self.sides.pads["right"](_batch_of(rows), rows)
        return [Trajectory(behind, (Round(),) * min(steps, _OTHER_STEPS), is_other_side=True)]

    def _rows(self, length: int) -> list[Trajectory]:
        """Return sequences side by side whose rows a beam search selects, after a longer prompt."""
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
                self.skipped[f"lengths around {length}: nothing is defined beyond {end} positions"] = None
                continue
            # From one less on, with a past; and at once, of the length itself and of its double.
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
            self.skipped[f"reorder: the runtime of the {' and the '.join(fixed)} keeps slots in their places"] = None
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
        """Return whether rows that are masked whole spoil the others, as in some exports."""
        self.reference.reset()
        self.reference.forward(prompt.ids, prompt.mask)
        logits = self.reference.logits
        return bool(np.isnan(logits[prompt.mask[:, -logits.shape[1] :] != 0]).any())

    def _named_sessions(self) -> tuple[tuple[str, DecodeSession], ...]:
        return ("reference", self.reference), ("candidate", self.candidate)


def _batch_of(rows: Sequence[tuple[int, ...]]) -> str:
    return f"batch of {len(rows)}, prompts"
