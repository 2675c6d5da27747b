"""Entries are removed when masking them has cost as much as removing them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from graphpass.runtime.sessions.compaction import CompactionPolicy
from graphpass.runtime.sessions.slots import Slots
from graphpass.runtime.sessions.tokens import Tokens


def slots_after(length: int, dropped: int) -> Slots:
    slots = Slots(1)
    for count in (length, 1):
        ids = np.ones((1, count), np.int64)
        slots.append(Tokens(ids, ids, ids))
        if count == length:
            slots.keep(length - dropped)
    return slots


@given(length=st.integers(2, 40), steps_per_copy=st.integers(1, 50), data=st.data())
def test_masking_costs_at_most_as_much_as_removal(length: int, steps_per_copy: int, data: st.DataObject) -> None:
    slots = slots_after(length, data.draw(st.integers(1, length - 1)))
    policy, steps = CompactionPolicy(lambda: "any", steps_per_copy), 0
    while policy.fits(slots):
        steps += 1
    removal = steps_per_copy * slots.length
    assert steps * slots.waste <= removal < (steps + 1) * slots.waste
    policy.compacted()
    assert policy.fits(slots) == (slots.waste <= removal)


def test_models_that_index_entries_keep_them_in_place() -> None:
    policy, slots = CompactionPolicy(lambda: "index", 100), slots_after(6, 2)
    assert policy.must_move(slots)
    assert not policy.fits(slots)
    slots.compact()
    assert policy.fits(slots)
    assert not policy.must_move(slots)


def test_shared_entries_are_sorted() -> None:
    policy, slots = CompactionPolicy(lambda: "any", 100), slots_after(6, 2)
    assert not policy.must_move(slots)
    slots.reorder(np.array([0]), np.array([1]))
    assert policy.wants_sorting(slots)
