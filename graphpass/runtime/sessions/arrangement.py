"""When the entries of growing caches have to be moved in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.analysis.lengths.past_order import PastOrder
    from graphpass.runtime.sessions.slots import Slots

__all__ = ["Arrangement"]


class Arrangement:
    """Decides whether the model can work with the entries of its caches as they lie.

    Entries that stand for no slot are hidden by the mask, and cost a little at every step; taking them out costs much,
    once. So they are taken out when hiding them has cost as much as taking them out does: never more than twice the
    least that was possible.
    """

    def __init__(self, past_order: Callable[[], PastOrder], steps_per_copy: float) -> None:
        """Without costs so far.

        Args:
            past_order: What the model sees of the order of past entries; asked only once something was edited.
            steps_per_copy: How many steps with one wasted entry cost as much as gathering one entry that is needed.
        """
        self._past_order = past_order
        self._steps_per_copy = steps_per_copy
        self._cost = 0

    def wants_sorting(self, slots: Slots) -> bool:
        """Whether entries have to stand in the order of their slots, one for each, and do not."""
        return slots.shares or (not slots.in_order and self._past_order() != "any")

    def fits(self, slots: Slots) -> bool:
        """Whether the next step may run on the entries, sorted if need be, as they lie; call it once a step."""
        if slots.in_place:
            return True
        if self._past_order() == "index":
            return False
        self._cost += slots.waste
        return self._cost <= self._steps_per_copy * slots.length

    def compacted(self) -> None:
        """Note that there is no waste any more."""
        self._cost = 0
