"""Checkpoints of linear caches, to which a session rewinds, and snapshots of sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from graphpass.ir.cache import Inventory
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.slots import SlotState
    from graphpass.runtime.sessions.tokens import Tokens


#: Tokens between two checkpoints when no drafts are verified.
SPARSE = 64

#: Limits on the number of checkpoints and on their total bytes.
_MOST = 64
_MOST_BYTES = 1 << 28

#: Number of newest checkpoints, which are dropped last: a rejected draft rewinds to one of these.
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
        """Return the size of the states in bytes."""
        return sum(state.nbytes for state in self.states.values())


class Checkpoints:
    """A bounded number of checkpoints, dense near the end of the sequence, sparse before.

    Attributes:
        kept: All checkpoints, shortest first.
    """

    def __init__(self) -> None:
        self.kept: tuple[Checkpoint, ...] = ()

    @property
    def bytes(self) -> int:
        """Return the size of all checkpoints in bytes."""
        return sum(checkpoint.bytes for checkpoint in self.kept)

    def are_due(self, length: int, *, drafting: bool) -> bool:
        """Return whether to add a checkpoint before the next step.

        Args:
            length: Number of slots before the step.
            drafting: Whether the step may verify drafts, so that the session may return to ``length``.
        """
        last = self.kept[-1].length if self.kept else None
        if last == length or length == 0:
            return False
        return drafting or last is None or length - last >= SPARSE

    def add(self, checkpoint: Checkpoint) -> None:
        """Add ``checkpoint``, the longest so far, and drop older ones to observe the limits."""
        kept = [*self.kept, checkpoint]
        while len(kept) > 1 and (len(kept) > _MOST or sum(checkpoint.bytes for checkpoint in kept) > _MOST_BYTES):
            older = max(len(kept) - _NEWEST, 1)
            gaps = [kept[i + 1].length - (kept[i - 1].length if i else 0) for i in range(older)]
            del kept[int(np.argmin(gaps))]
        self.kept = tuple(kept)

    def nearest(self, length: int) -> Checkpoint | None:
        """Return the longest checkpoint of at most ``length`` slots, if any."""
        return next((kept for kept in reversed(self.kept) if kept.length <= length), None)

    def drop_after(self, length: int) -> None:
        """Drop checkpoints of more than ``length`` slots."""
        self.kept = tuple(kept for kept in self.kept if kept.length <= length)

    def select(self, rows: NDArray[np.int64], axes: Mapping[str, int]) -> None:
        """Continue row i from row ``rows[i]``.

        Args:
            rows: int64 [batch].
            axes: Batch axis by cache name; a cache without one is shared by all rows.
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
    """The steps that a model with ``insert-snapshot`` can undo, since it stores earlier states.

    Attributes:
        pending: Number of steps that the next step undoes first (input ``steps_back``).
    """

    def __init__(self, inventory: Inventory) -> None:
        """Begin without steps.

        Args:
            inventory: The model's caches. With input ``steps_back``, each linear cache has a history
                ``[slots, batch, ..]``.
        """
        histories = [cache.shape[0] for cache in inventory.of_kind("other") if cache.axes.batch == 1 and cache.shape]
        self._slots = min((size for size in histories if isinstance(size, int)), default=0)
        self.clear()

    @property
    def is_kept(self) -> bool:
        """Return whether the model stores earlier states."""
        return self._slots > 0

    def clear(self) -> None:
        """Forget all steps; required after caches were written."""
        self._starts: list[int] = []
        self.pending = 0

    def step(self, start: int) -> None:
        """Record a step after ``start`` slots, which undid the pending steps."""
        self.pending = 0
        if self._slots:
            self._starts = [*self._starts, start][-self._slots :]

    def back(self, length: int) -> int | None:
        """Undo the fewest steps that leave less than ``length`` slots.

        Returns:
            Number of remaining slots; ``None`` if the history is too short.
        """
        for count, start in enumerate(reversed(self._starts), start=1):
            if 0 < start < length:
                del self._starts[-count:]
                self.pending += count
                return start
        return None


@dataclass(eq=False)
class Snapshot:
    """A session's tokens and caches at one time, from `DecodeSession.snapshot`.

    Entries of growing caches remain in the session, which copies them to the snapshot before it moves or drops them.

    Attributes:
        length: Number of slots.
        life: Identity of the session since its last reset or change of adapters.
        slots: Entries in the session's growing caches; ``None`` if they are in ``copies`` or cannot be read.
        tokens: Contents of the slots.
        origins: `Slots.origins` of the slots.
        states: Caches of fixed size by name.
        checkpoints: Checkpoints of the session.
        outputs: Outputs of the last forward pass by name.
        copies: Copied entries of growing caches by cache name.

    Examples:
        >>> from graphpass.runtime import open_session
        >>> from graphpass.testing import tiny_model
        >>> session = open_session(tiny_model("llama"))
        >>> logits = session.prefill([1, 5, 9])
        >>> session.snapshot().length
        3
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
        """Return the size of all copies of caches in bytes."""
        return sum(array.nbytes for array in (*self.states.values(), *self.copies.values()))
