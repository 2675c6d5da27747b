"""States of linear caches that a session keeps to rewind to, and snapshots that a caller keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.slots import Held, Tokens

__all__ = ["SPARSE", "Checkpoint", "Checkpoints", "Snapshot"]

#: While nothing is drafted, a state is kept after so many tokens.
SPARSE = 64

#: How many states are kept at most, and how many bytes they may take together.
_MOST = 64
_MOST_BYTES = 1 << 28

#: The newest states are those that a rejected draft goes back to.
_NEWEST = 8


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The linear caches as they were after the first ``length`` tokens.

    Attributes:
        length: Slots.
        states: By cache name.
    """

    length: int
    states: Mapping[str, Array]

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        return sum(state.nbytes for state in self.states.values())


class Checkpoints:
    """A bounded number of checkpoints, dense where the session is, sparse before."""

    def __init__(self) -> None:
        """Without checkpoints."""
        self._kept: tuple[Checkpoint, ...] = ()

    @property
    def kept(self) -> tuple[Checkpoint, ...]:
        """All of them, shortest first."""
        return self._kept

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return sum(checkpoint.bytes for checkpoint in self._kept)

    def are_due(self, length: int, *, drafting: bool) -> bool:
        """Whether the state after ``length`` tokens should be kept before more are fed."""
        last = self._kept[-1].length if self._kept else None
        if last == length or length == 0:
            return False
        return drafting or last is None or length - last >= SPARSE

    def add(self, checkpoint: Checkpoint) -> None:
        """Keep ``checkpoint``, the longest so far; older ones make room."""
        kept = [*self._kept, checkpoint]
        while len(kept) > 1 and (len(kept) > _MOST or sum(one.bytes for one in kept) > _MOST_BYTES):
            older = max(len(kept) - _NEWEST, 1)
            gaps = [kept[i + 1].length - (kept[i - 1].length if i else 0) for i in range(older)]
            del kept[int(np.argmin(gaps))]
        self._kept = tuple(kept)

    def nearest(self, length: int) -> Checkpoint | None:
        """The longest one of at most ``length``; ``None`` where only the start is left."""
        return next((kept for kept in reversed(self._kept) if kept.length <= length), None)

    def drop_after(self, length: int) -> None:
        """Forget those of more than ``length``: other tokens will stand there."""
        self._kept = tuple(kept for kept in self._kept if kept.length <= length)

    def be(self, kept: tuple[Checkpoint, ...]) -> None:
        """Keep these, and no others."""
        self._kept = kept

    def select(self, rows: NDArray[np.int64], axes: Mapping[str, int]) -> None:
        """Row i goes on with row ``rows[i]``.

        Args:
            rows: int64 [batch].
            axes: Where the batch stands, by cache name; a cache without one is the same for all rows.
        """
        self._kept = tuple(
            Checkpoint(
                kept.length,
                {
                    name: state.take(rows, axis=axes[name]) if name in axes else state
                    for name, state in kept.states.items()
                },
            )
            for kept in self._kept
        )


@dataclass(eq=False)
class Snapshot:
    """A session's tokens and caches at one time; made by `DecodeSession.snapshot`, for `DecodeSession.restore`.

    Growing caches are not copied: the session leaves their entries where they are. Only when it has to take them out,
    it copies them to here first.

    Attributes:
        length: Slots that it holds.
        life: What the session lived through between two resets; equal only to itself.
        held: Where the entries of growing caches are; ``None`` once they are in ``copies``.
        tokens: What stands in the slots.
        states: The caches of fixed size, by name.
        checkpoints: What the session could rewind to.
        outputs: Those of the last forward pass.
        copies: The growing caches, by name, once the session no longer holds them.
    """

    length: int
    life: object = field(repr=False)
    held: Held | None = field(repr=False)
    tokens: Tokens = field(repr=False)
    states: Mapping[str, Array] = field(repr=False)
    checkpoints: tuple[Checkpoint, ...] = field(repr=False)
    outputs: dict[str, Array] = field(repr=False)
    copies: dict[str, Array] = field(repr=False, default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of caches that it holds copies of."""
        return sum(array.nbytes for array in (*self.states.values(), *self.copies.values()))
