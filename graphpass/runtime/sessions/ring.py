"""`Ring`: which steps a model can take back in its linear caches itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.ir.cache import Inventory

__all__ = ["Ring"]


class Ring:
    """The steps whose states the pass ``insert-snapshot`` keeps inside the model.

    Attributes:
        pending: How many steps the next one is to take back first.
    """

    def __init__(self, inventory: Inventory) -> None:
        """Without steps.

        Args:
            inventory: Of a model with the input ``steps_back``: each linear cache has a history ``[slots, batch, ..]``.
        """
        histories = [cache.shape[0] for cache in inventory.of_kind("other") if cache.axes.batch == 1 and cache.shape]
        self._slots = min((size for size in histories if isinstance(size, int)), default=0)
        self._starts: list[int] = []
        self.pending = 0

    @property
    def is_there(self) -> bool:
        """Whether the model keeps any states."""
        return self._slots > 0

    def clear(self) -> None:
        """Forget all steps: the caches were set to something else."""
        self._starts = []
        self.pending = 0

    def step(self, start: int) -> None:
        """Note a step that was made behind ``start`` slots, and that took back what was pending."""
        self.pending = 0
        if self._slots:
            self._starts = [*self._starts, start][-self._slots :]

    def back(self, length: int) -> int | None:
        """Take back as few steps as leave less than ``length`` slots, so that there is something to feed next.

        Returns:
            How many slots the caches know then; ``None`` where the ring does not reach so far back, or only to nothing.
        """
        for count, start in enumerate(reversed(self._starts), start=1):
            if 0 < start < length:
                del self._starts[-count:]
                self.pending += count
                return start
        return None
