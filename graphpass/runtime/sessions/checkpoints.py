"""Keep states of linear caches to rewind to, and snapshots for callers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from graphpass.ir.cache import Inventory
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.slots import SlotState, Tokens


#: Tokens between two states that are kept while nothing is drafted.
SPARSE = 64

#: Limits on the number of kept states and on their bytes together.
_MOST = 64
_MOST_BYTES = 1 << 28

#: A rejected draft goes back to one of the newest states.
_NEWEST = 8


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Linear caches after the first ``length`` slots.

    Attributes:
        length: Number of slots.
        states: Contents by the name of the cache.
    """

    length: int
    states: Mapping[str, Array]

    @property
    def bytes(self) -> int:
        """Return the memory that it takes."""
        return sum(state.nbytes for state in self.states.values())


class Checkpoints:
    """Keeps a bounded number of checkpoints, dense near the end, sparse before.

    Attributes:
        kept: All of them, shortest first.
    """

    def __init__(self) -> None:
        self.kept: tuple[Checkpoint, ...] = ()

    @property
    def bytes(self) -> int:
        """Return the memory that they take."""
        return sum(checkpoint.bytes for checkpoint in self.kept)

    def are_due(self, length: int, *, drafting: bool) -> bool:
        """Return whether to keep the state after ``length`` tokens before more are fed."""
        last = self.kept[-1].length if self.kept else None
        if last == length or length == 0:
            return False
        return drafting or last is None or length - last >= SPARSE

    def add(self, checkpoint: Checkpoint) -> None:
        """Keep ``checkpoint``, the longest so far, and drop older ones to make room."""
        kept = [*self.kept, checkpoint]
        while len(kept) > 1 and (len(kept) > _MOST or sum(checkpoint.bytes for checkpoint in kept) > _MOST_BYTES):
            older = max(len(kept) - _NEWEST, 1)
            gaps = [kept[i + 1].length - (kept[i - 1].length if i else 0) for i in range(older)]
            del kept[int(np.argmin(gaps))]
        self.kept = tuple(kept)

    def nearest(self, length: int) -> Checkpoint | None:
        """Return the longest one of at most ``length``; ``None`` if only the start is left."""
        return next((kept for kept in reversed(self.kept) if kept.length <= length), None)

    def drop_after(self, length: int) -> None:
        """Forget those of more than ``length`` slots, which will hold other tokens."""
        self.kept = tuple(kept for kept in self.kept if kept.length <= length)

    def select(self, rows: NDArray[np.int64], axes: Mapping[str, int]) -> None:
        """Continue row i from row ``rows[i]``.

        Args:
            rows: int64 [batch].
            axes: Axis of the batch by cache name; a cache without one is the same for all rows.
        """
        self.kept = tuple(
            Checkpoint(
                kept.length,
                {
                    name: state.take(rows, axis=axes[name]) if name in axes else state
                    for name, state in kept.states.items()
                },
            )
            for kept in self.kept
        )


class StepHistory:
    """Counts the steps whose states the pass ``insert-snapshot`` keeps inside the model.

    Attributes:
        pending: Number of steps that the next one takes back first.
    """

    def __init__(self, inventory: Inventory) -> None:
        """Begin without steps.

        Args:
            inventory: Each linear cache of a model with the input ``steps_back`` has a history ``[slots, batch, ..]``.
        """
        histories = [cache.shape[0] for cache in inventory.of_kind("other") if cache.axes.batch == 1 and cache.shape]
        self._slots = min((size for size in histories if isinstance(size, int)), default=0)
        self.clear()

    @property
    def is_kept(self) -> bool:
        """Return whether the model keeps any states."""
        return self._slots > 0

    def clear(self) -> None:
        """Forget all steps, since the caches were set to something else."""
        self._starts: list[int] = []
        self.pending = 0

    def step(self, start: int) -> None:
        """Note a step after ``start`` slots, which took back the pending steps."""
        self.pending = 0
        if self._slots:
            self._starts = [*self._starts, start][-self._slots :]

    def back(self, length: int) -> int | None:
        """Undo the fewest steps that leave less than ``length`` slots.

        Returns:
            Number of slots that are left; ``None`` if the history does not reach back so far.
        """
        for count, start in enumerate(reversed(self._starts), start=1):
            if 0 < start < length:
                del self._starts[-count:]
                self.pending += count
                return start
        return None


@dataclass(eq=False)
class Snapshot:
    """Holds a session's tokens and caches at one time, from `DecodeSession.snapshot` for `DecodeSession.restore`.

    The session leaves the entries of growing caches in place, and copies them to here before it takes them out.

    Attributes:
        length: Number of slots.
        life: Stands for the time of a session between two resets; equal only to itself.
        slots: Entries in the growing caches; ``None`` once they are in ``copies``.
        tokens: Contents of the slots.
        origins: Their `Slots.origins`.
        states: Caches of fixed size by name.
        checkpoints: States that the session could rewind to.
        outputs: Results of the last forward pass.
        copies: Growing caches by name, once the session no longer holds them.
    """

    length: int
    life: object = field(repr=False)
    slots: SlotState | None = field(repr=False)
    tokens: Tokens = field(repr=False)
    origins: NDArray[np.int64] = field(repr=False)
    states: Mapping[str, Array] = field(repr=False)
    checkpoints: tuple[Checkpoint, ...] = field(repr=False)
    outputs: dict[str, Array] = field(repr=False)
    copies: dict[str, Array] = field(repr=False, default_factory=dict)

    @property
    def bytes(self) -> int:
        """Return the bytes of caches that it holds copies of."""
        return sum(array.nbytes for array in (*self.states.values(), *self.copies.values()))
