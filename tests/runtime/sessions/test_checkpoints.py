"""Checkpoints near the end of a sequence are dense, and steps that a model can undo are counted."""

import numpy
import pytest
from support.caches import cache, inventory

from graphpass.ir.cache import Axes
from graphpass.runtime.sessions import checkpoints
from graphpass.runtime.sessions.checkpoints import Checkpoint, Checkpoints, StepHistory


def kept_after(*lengths, size=1):
    found = Checkpoints()
    for length in lengths:
        found.add(Checkpoint(length, {"s": numpy.full([2, size], length, numpy.uint8)}))
    return found


@pytest.mark.parametrize(
    ("lengths", "length", "drafting", "due"),
    [
        ((), 0, True, False),
        ((), 5, False, True),
        ((10,), 10, True, False),
        ((10,), 11, True, True),
        ((10,), 73, False, False),
        ((10,), 74, False, True),
    ],
)
def test_checkpoints_are_due_at_each_draft_or_64_tokens_apart(lengths, length, drafting, due):
    assert kept_after(*lengths).are_due(length, drafting=drafting) == due


def test_the_newest_are_kept_and_older_ones_thinned():
    found = kept_after(*range(1, 101))
    lengths = [each.length for each in found.kept]
    assert len(lengths) == 64
    assert lengths[-8:] == list(range(93, 101))
    assert max(numpy.diff([0, *lengths])) <= 4


def test_the_limit_of_bytes_leaves_one(monkeypatch):
    monkeypatch.setattr(checkpoints, "_MOST_BYTES", 25)
    assert [each.length for each in kept_after(1, 2, 3, size=5).kept] == [2, 3]
    assert [each.length for each in kept_after(1, 2, 3, size=50).kept] == [3]


def test_the_nearest_is_not_after_the_length():
    found = kept_after(2, 5, 9)
    assert [found.nearest(length) and found.nearest(length).length for length in (1, 2, 8, 20)] == [None, 2, 5, 9]
    found.drop_after(5)
    assert [each.length for each in found.kept] == [2, 5]
    assert found.bytes == 4


def test_rows_are_selected_along_the_batch_axis():
    found = Checkpoints()
    found.add(
        Checkpoint(1, {"a": numpy.array([[1], [2]]), "b": numpy.array([[1, 2]]), "shared": numpy.array([[1], [2]])})
    )
    found.select(numpy.array([1, 1, 0]), {"a": 0, "b": 1})
    (states,) = (each.states for each in found.kept)
    assert [states[name].tolist() for name in states] == [[[2], [2], [1]], [[2, 2, 1]], [[1], [2]]]


def history(*sizes):
    return StepHistory(
        inventory(*(cache(f"h{size}", kind="other", axes=Axes(batch=1), shape=(size, "b", 4)) for size in sizes))
    )


def test_a_model_without_histories_keeps_none():
    steps = history()
    steps.step(4)
    assert not steps.is_kept
    assert steps.back(9) is None


def test_steps_are_undone_as_far_as_the_shortest_history_goes():
    steps = history(3, 5)
    for start in (2, 4, 6, 8):
        steps.step(start)
    assert (steps.back(9), steps.pending) == (8, 1)
    assert (steps.back(6), steps.pending) == (4, 3)
    assert (steps.back(4), steps.pending) == (None, 3)
    steps.step(4)
    assert steps.pending == 0
    steps.clear()
    assert steps.back(9) is None


def test_the_first_step_is_not_undone():
    steps = history(3)
    steps.step(0)
    assert steps.back(5) is None
