"""Decide when unused entries of caches are removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.analysis.lengths.past_order import PastOrder
    from graphpass.runtime.sessions.slots import Slots


class CompactionPolicy:
    """A policy that decides when entries have to move before a step.

    Masking an entry without a slot has a small cost at each step; removing all of them has a large cost once. They are
    removed when masking has cost as much as removal, so the total is at most twice the optimum (ski rental).
    """

    def __init__(self, past_order: Callable[[], PastOrder], steps_per_copy: float) -> None:
        """Start with a cost of 0.

        Args:
            past_order: Returns how the model depends on the order of past entries; called after the first edit.
            steps_per_copy: Number of steps with one wasted entry that cost as much as gathering one entry.
        """
        self._past_order = past_order
        self._steps_per_copy = steps_per_copy
        self._cost = 0

    def must_move(self, slots: Slots) -> bool:
        """Return whether the model would be wrong unless entries move."""
        return self.wants_sorting(slots) or (not slots.in_place and self._past_order() == "index")

    def wants_sorting(self, slots: Slots) -> bool:
        """Return whether entries have to be sorted in the order of their slots."""
        return slots.shares or (not slots.in_order and self._past_order() != "any")

    def fits(self, slots: Slots) -> bool:
        """Return whether the next step can use sorted entries unchanged; call once per step."""
        if slots.in_place:
            return True
        if self._past_order() == "index":
            return False
        self._cost += slots.waste
        return self._cost <= self._steps_per_copy * slots.length

    def compacted(self) -> None:
        """Set the cost to 0 after waste was removed."""
        self._cost = 0
