"""Random sequences of edits on a decode session, each compared with recomputation of what survives them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from edits.oracle import Oracle, Recomputation
from hypothesis import HealthCheck, Phase, seed, settings, strategies as some
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from graphpass.errors import GraphpassError, UnsupportedError, UsageError
from graphpass.runtime import DecodeSession

#: Few enough that sequences meet again, which spares recomputation.
TOKENS = some.sampled_from(range(3, 320, 29))

#: Long enough for several windows of the sliding-window models (8 tokens) and for growth of buffers.
LONGEST = 40

COUNTS = some.integers(1, 4)


@dataclass(frozen=True)
class Subject:
    """A session and what it is held against.

    Attributes:
        session: What is edited.
        recompute: Logits from scratch.
        kind: The model's kind; slots of what is not ``kv`` cannot be moved.
        trees: Whether a step takes a tree of tokens.
        pads: Whether prompts of a batch may be padded on the left.
        longest_prompt: How many tokens a prefill may have.
        most_rows: How many sequences may run side by side.
        tolerance: How far logits may lie apart.
        unedited: Another session of the same form, where rounding adds up so much that steps which nobody edited lie
            further off a prompt of their tokens; what it gives for them, one by one or at once, is right then, too.
            Half of how far that lies off is rounding, up to twice the tolerance.
    """

    session: DecodeSession
    recompute: Recomputation
    kind: str = "kv"
    trees: bool = False
    pads: bool = False
    longest_prompt: int = 12
    most_rows: int = 3
    tolerance: float = 1e-4
    unedited: Callable[[], DecodeSession] | None = None

    def check(self, got: np.ndarray, wanted: np.ndarray, rounding: float = 0.0) -> None:
        """Logits agree where any are wanted, and so do the tokens that are chosen by them."""
        tolerance = max(self.tolerance, rounding)
        if got.shape[1] == 1:
            wanted = wanted[:, -1:]
        counts = ~np.isnan(wanted).all(axis=-1)
        got, wanted = got[counts], wanted[counts]
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)
        best = np.sort(wanted, axis=-1)
        clear = best[..., -1] - best[..., -2] > 2 * tolerance
        np.testing.assert_array_equal(got.argmax(-1)[clear], wanted.argmax(-1)[clear])


def check_edited(subject: Subject, oracle: Oracle, got: np.ndarray, wanted: np.ndarray) -> None:
    """Compare what the last step gave with recomputation, or with what the same form gives without edits."""
    try:
        subject.check(got, wanted)
    except AssertionError:
        if subject.unedited is None:
            raise
        # Experts that tie part prompts from steps.
        for first in (subject.longest_prompt, 1):
            unedited = _unedited(subject.unedited(), oracle, wanted, first)
            rounding = float(np.nanmax(abs(unedited - wanted))) / 2
            try:
                subject.check(got, unedited, min(rounding, 2 * subject.tolerance))
            except AssertionError:
                if first == 1:
                    raise
            else:
                return


def _unedited(session: DecodeSession, oracle: Oracle, wanted: np.ndarray, first: int) -> np.ndarray:
    """Return the logits of ``session`` for the last tokens where any are ``wanted``; it takes the ``first`` at once."""
    recomputed = np.full_like(wanted, np.nan)
    for row, tokens in enumerate(oracle.tokens):
        logits = [*session.prefill([tokens[:first]])[0], *(session.step([[token]])[0, -1] for token in tokens[first:])]
        count = int((~np.isnan(wanted[row]).all(axis=-1)).sum())
        known = logits[-count:]
        recomputed[row, recomputed.shape[1] - len(known) :] = known
    return recomputed


def run_edits(subject: Subject, sequences: int, *, random: int | None = None) -> None:
    """Run random edit sequences of about 20 edits each; the same ones every time unless ``random`` seeds them."""

    class Edits(EditMachine):
        pass

    Edits.subject = subject
    if random is not None:
        seed(random)(Edits)
    run_state_machine_as_test(
        Edits,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=20,
            derandomize=random is None,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )


@dataclass(frozen=True)
class Kept:
    """A snapshot and what it should bring back; ``life`` counts the resets before it."""

    session: Any = field(repr=False)
    oracle: Any
    life: int


class EditMachine(RuleBasedStateMachine):
    """The edits that a session takes, and when."""

    subject: ClassVar[Subject]
    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.session = self.subject.session
        self.session.reset()
        self.oracle = Oracle(self.subject.recompute)
        self.life = 0

    def fed(self) -> bool:
        return self.oracle.length > 0

    def has_room(self) -> bool:
        return 0 < self.oracle.length < LONGEST

    @invariant()
    def holds_as_much(self) -> None:
        assert self.session.length == self.oracle.length
        assert self.session.batch == self.oracle.batch

    @initialize(data=some.data())
    def begin(self, data: some.DataObject) -> None:
        self.prefill(data)

    @rule(data=some.data())
    def prefill(self, data: some.DataObject) -> None:
        batch = data.draw(some.integers(1, self.subject.most_rows))
        length = data.draw(some.integers(1, self.subject.longest_prompt))
        ids = data.draw(_ids(batch, length))
        most = length - 1 if self.subject.pads else 0
        padding = data.draw(some.lists(some.integers(0, most), min_size=batch, max_size=batch))
        mask = [[int(place >= count) for place in range(length)] for count in padding] if any(padding) else None
        self.check(self.session.prefill(ids, mask), self.oracle.prefill(ids, padding))
        self.life += 1

    @precondition(has_room)
    @rule(data=some.data(), length=COUNTS)
    def step(self, data: some.DataObject, length: int) -> None:
        ids = data.draw(_ids(self.oracle.batch, length))
        self.check(self.session.step(ids), self.oracle.step(ids))

    @precondition(lambda self: self.subject.trees and self.has_room())
    @rule(data=some.data(), length=some.integers(2, 6))
    def tree(self, data: some.DataObject, length: int) -> None:
        """A tree of drafts, of which one branch is kept."""
        length_before = self.oracle.length
        ids = data.draw(_ids(self.oracle.batch, length))
        parents = [data.draw(some.integers(-1, node - 1)) for node in range(length)]
        self.check(self.session.step(ids, parents=parents), self.oracle.step(ids, parents))
        node = data.draw(some.integers(-1, length - 1))
        branch: list[int] = []
        while node >= 0:
            branch.insert(0, node)
            node = parents[node]
        slots = [(length_before + node, length_before + depth) for depth, node in enumerate(branch)]
        moves = data.draw(some.permutations(slots))
        for subject in (self.session, self.oracle):
            subject.reorder([source for source, _ in moves], [slot for _, slot in moves])
            subject.rewind(length_before + len(branch))

    @precondition(fed)
    @rule(data=some.data())
    def trim(self, data: some.DataObject) -> None:
        count = data.draw(some.integers(0, self.oracle.length))
        self.session.trim(count)
        self.oracle.trim(count)

    @precondition(fed)
    @rule(data=some.data())
    def rewind(self, data: some.DataObject) -> None:
        length = data.draw(some.integers(0, self.oracle.length))
        self.session.rewind(length)
        self.oracle.rewind(length)

    @precondition(lambda self: self.subject.kind == "kv" and self.fed())
    @rule(data=some.data())
    def reorder_in_place(self, data: some.DataObject) -> None:
        """Moves of slots to where they are; the only ones, apart from trees, that a recomputation knows."""
        slots = data.draw(some.lists(some.integers(0, self.oracle.length - 1), unique=True, max_size=4))
        self.session.reorder(slots, slots)

    @precondition(fed)
    @rule(data=some.data())
    def select(self, data: some.DataObject) -> None:
        """Also more or fewer rows than before."""
        rows = some.integers(0, self.oracle.batch - 1)
        beams = data.draw(some.lists(rows, min_size=1, max_size=self.subject.most_rows))
        self.session.select(beams)
        self.oracle.select(beams)

    @precondition(fed)
    @rule(target=snapshots)
    def snapshot(self) -> Kept:
        return Kept(self.session.snapshot(), self.oracle.snapshot(), self.life)

    @rule(kept=snapshots)
    def restore(self, kept: Kept) -> None:
        """A snapshot from before a reset may be refused, and then nothing has changed."""
        try:
            self.session.restore(kept.session)
        except GraphpassError:
            assert kept.life != self.life
        else:
            self.oracle.restore(kept.oracle)

    @precondition(lambda self: self.fed() and self.subject.longest_prompt > 1)
    @rule()
    def save_and_load(self) -> None:
        """Go on from a file, if the runtime hands out caches; otherwise nothing has changed.

        A file keeps no states to rewind to, so what is computed again begins with a prompt.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.safetensors"
            try:
                self.session.save(path)
            except UnsupportedError:
                assert not path.exists()
            else:
                self.session.load(path)
                self.life += 1

    @rule()
    def reset(self) -> None:
        self.session.reset()
        self.oracle.reset()
        self.life += 1

    @precondition(lambda self: self.oracle.batch <= 1 and self.oracle.length < LONGEST)
    @rule(data=some.data(), tail=some.lists(TOKENS, min_size=1, max_size=6))
    def align(self, data: some.DataObject, tail: list[int]) -> None:
        """A history that leaves what the session holds somewhere."""
        tokens = self.oracle.tokens[0] if self.oracle.rows else ()
        common = data.draw(some.integers(0, len(tokens)))
        history = [*tokens[:common], *tail]
        missing = [int(token) for token in self.session.align(history)[0]]
        assert missing
        assert history[-len(missing) :] == missing
        if self.oracle.is_padded:
            assert missing == history
        elif self.subject.kind == "kv":
            again = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tokens, history, strict=False)))
            assert len(history) - len(missing) == min(again, len(history) - 1)
        kept = len(history) - len(missing)
        assert self.session.length == kept
        self.oracle.rows = [self.oracle.rows[0][:kept]] if kept else []
        if not kept:
            self.life += 1
        first = len(missing) if kept else self.subject.longest_prompt
        for ids in filter(None, (missing[:first], missing[first:])):
            self.check(self.session.step([ids]), self.oracle.step([ids]))

    @precondition(fed)
    @rule(data=some.data())
    def wrong_request(self, data: some.DataObject) -> None:
        """Is refused, and nothing has changed."""
        length = self.oracle.length
        outside = data.draw(some.sampled_from([-1, length]))
        wrong = data.draw(
            some.sampled_from(
                [
                    lambda: self.session.trim(length + 1),
                    lambda: self.session.trim(-1),
                    lambda: self.session.rewind(length + 1),
                    lambda: self.session.rewind(-1),
                    lambda: self.session.reorder([0, 0], [0]),
                    lambda: self.session.reorder([0, 0], [0, 0]),
                    lambda: self.session.reorder([outside], [0]),
                    lambda: self.session.reorder([0], [outside]),
                    lambda: self.session.select([self.oracle.batch]),
                ]
            )
        )
        with pytest.raises(UsageError):
            wrong()

    def check(self, got: np.ndarray, wanted: np.ndarray) -> None:
        """Compare what the last step gave."""
        check_edited(self.subject, self.oracle, got, wanted)

    def teardown(self) -> None:
        """The last edit shows in a step; after a failure, the lengths may differ already."""
        if self.fed() and self.session.length == self.oracle.length and self.session.batch == self.oracle.batch:
            ids = [[5]] * self.oracle.batch
            self.check(self.session.step(ids), self.oracle.step(ids))


def _ids(batch: int, length: int) -> some.SearchStrategy[list[list[int]]]:
    row = some.lists(TOKENS, min_size=length, max_size=length)
    return some.lists(row, min_size=batch, max_size=batch)
