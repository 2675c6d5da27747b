"""Slots against the plainest thing they could be: a list of what stands in each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from graphpass.errors import UsageError
from graphpass.runtime.sessions.slots import Slots, SlotState, indices
from graphpass.runtime.sessions.tokens import Tokens


class SlotMachine(RuleBasedStateMachine):
    """A memory of entries, edited through `Slots`, and beside it the list that it should amount to."""

    @initialize(batch=st.integers(1, 3))
    def start(self, batch: int) -> None:
        self.slots = Slots(batch)
        self.memory = np.zeros((batch, 0), np.int64)
        self.expected = np.zeros((batch, 0, 3), np.int64)
        self.next = 1
        self.kept: tuple[SlotState, np.ndarray] | None = None

    @rule(count=st.integers(1, 40), hidden=st.integers(0, 2))
    def append(self, count: int, hidden: int) -> None:
        batch = self.slots.batch
        ids = np.arange(self.next, self.next + batch * count).reshape(batch, count)
        self.next += ids.size
        mask = np.ones_like(ids)
        mask[0, :hidden] = 0
        self.slots.append(Tokens(ids, mask, ids % 17))
        self.memory = np.concatenate([self.memory, ids], axis=1)
        self.expected = np.concatenate([self.expected, np.stack([ids, mask, ids % 17], axis=-1)], axis=1)

    @rule(share=st.floats(0, 1))
    def keep(self, share: float) -> None:
        length = round(self.slots.length * share)
        self.slots.keep(length)
        self.expected = self.expected[:, :length]

    @precondition(lambda self: self.slots.length > 1)
    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        slot = st.integers(0, self.slots.length - 1)
        destinations = data.draw(st.lists(slot, min_size=1, max_size=6, unique=True))
        sources = data.draw(st.lists(slot, min_size=len(destinations), max_size=len(destinations)))
        self.slots.reorder(np.array(sources), np.array(destinations))
        moved = self.expected.copy()
        moved[:, destinations] = self.expected[:, sources]
        self.expected = moved

    @rule(data=st.data())
    def select(self, data: st.DataObject) -> None:
        rows = np.array(data.draw(st.lists(st.integers(0, self.slots.batch - 1), min_size=1, max_size=3)))
        self.slots.select(rows)
        self.memory, self.expected, self.kept = self.memory[rows], self.expected[rows], None

    @rule()
    def sort(self) -> None:
        sources, destinations = self.slots.sort()
        self.memory[:, destinations] = self.memory[:, sources]
        self.kept = None
        assert self.slots.in_order
        assert not self.slots.shares

    @rule()
    def compact(self) -> None:
        self.memory = self.memory[:, self.slots.compact()]
        self.kept = None
        assert self.slots.in_place

    @rule()
    def hold(self) -> None:
        self.kept = self.slots.state(), self.expected.copy()

    @precondition(lambda self: self.kept is not None)
    @rule()
    def go_back(self) -> None:
        held, self.expected = self.kept
        self.slots.back_to(held)

    @invariant()
    def holds_what_it_should(self) -> None:
        slots = self.slots
        assert slots.size == self.memory.shape[1]
        assert slots.length == self.expected.shape[1]
        np.testing.assert_array_equal(self.memory[:, slots.entries], self.expected[..., 0])
        tokens = slots.tokens()
        np.testing.assert_array_equal(np.stack([tokens.ids, tokens.mask, tokens.positions], axis=-1), self.expected)
        np.testing.assert_array_equal(slots.counted, self.expected[..., 1].sum(axis=1))
        visible = np.zeros_like(self.memory)
        visible[:, slots.entries] = self.expected[..., 1]
        np.testing.assert_array_equal(slots.visible, visible)
        assert slots.waste == slots.size - len(set(slots.entries.tolist()))
        assert slots.shares == (len(set(slots.entries.tolist())) < slots.length)
        assert slots.in_order == (sorted(set(slots.entries.tolist())) == slots.entries.tolist())
        assert slots.in_place == (slots.entries.tolist() == list(range(slots.size)))


TestSlots = SlotMachine.TestCase
TestSlots.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_sorting_moves_named_slots_only() -> None:
    slots = Slots(1)
    ids = np.arange(10)[None]
    slots.append(Tokens(ids, np.ones_like(ids), ids))
    slots.reorder(np.array([9, 3, 3]), np.array([3, 4, 9]))
    sources, destinations = slots.sort()
    assert sorted(zip(sources.tolist(), destinations.tolist(), strict=True)) == [(3, 4), (3, 9), (9, 3)]
    assert slots.in_place


@given(st.lists(st.integers(-5, 12)), st.integers(0, 8))
def test_indices_are_in_range_or_an_error(values: list[int], limit: int) -> None:
    if all(0 <= value < limit for value in values):
        assert indices(values, limit, "what", "GP244").tolist() == values
    else:
        with pytest.raises(UsageError, match="in what is out of range"):
            indices(values, limit, "what", "GP244")


@pytest.mark.parametrize("values", [[0.5], [[1]], 1, [True], ["a"]])
def test_indices_are_whole_numbers(values: object) -> None:
    with pytest.raises(UsageError, match="what must be a list of whole numbers"):
        indices(values, 9, "what", "GP244")
