"""Map the slots of a session to entries of its caches in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UsageError
from graphpass.runtime.sessions.tokens import Tokens

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


#: Initial size of the tables, in entries; they double when full.
_ROOM = 64

#: Rows of the table of entries; positions fill the rest.
_IDS, _VISIBLE, _MASK, _POSITIONS = range(4)


@dataclass(frozen=True, slots=True)
class SlotState:
    """The state of slots at one time, valid while the caches still have their entries.

    Attributes:
        entries: int64 [length], the entry of each slot.
        mask: int64 [batch, length], 0 for padding.
    """

    entries: NDArray[np.int64]
    mask: NDArray[np.int64]


class Slots:
    """The map of logical slots 0..length-1 to physical entries 0..size-1 of the caches.

    A step appends entries. Trimming and reordering change only the map. Entries without a slot are waste, which
    `visible` excludes and `compact` removes.

    Attributes:
        batch: Number of rows.
        size: Number of entries in the caches.
        length: Number of slots.
        in_order: Whether entries are in the order of their slots.
    """

    def __init__(self, batch: int, axes: tuple[int, ...] = ()) -> None:
        """Create an empty map.

        Args:
            batch: Number of rows.
            axes: Leading axes of positions: ``(3,)`` if each token has three.
        """
        self.batch = batch
        self._axes = axes
        self.size = 0
        self.length = 0
        # Entry of each slot, and number of slots of each entry. New entries follow the existing ones, one per slot.
        self._entries = np.arange(_ROOM)
        self._uses = np.ones(_ROOM, np.int64)
        # Ids, visibility, mask and positions of each entry, [4 or more, batch, room].
        self._table = np.zeros((_POSITIONS + math.prod(axes), batch, _ROOM), np.int64)
        # Serial number of each entry, and of the entry that it was computed after, [2, room].
        self._origins = np.zeros((2, _ROOM), np.int64)
        self._next = 1
        self._counted = np.zeros(batch, np.int64)
        self._used = 0
        self.in_order = True

    @property
    def waste(self) -> int:
        """Return the number of entries without a slot."""
        return self.size - self._used

    @property
    def shares(self) -> bool:
        """Return whether two slots share an entry, which attention would count once."""
        return self._used < self.length

    @property
    def in_place(self) -> bool:
        """Return whether entry i is slot i, without waste."""
        return self.size == self.length and self.in_order

    @property
    def is_history(self) -> bool:
        """Return whether each slot was computed after the one before it."""
        numbers, before = self.origins
        return not before.size or bool(before[0] == 0 and (before[1:] == numbers[:-1]).all())

    @property
    def origins(self) -> NDArray[np.int64]:
        """Return serial numbers of each slot and of its predecessor when computed, int64 [2, length]."""
        return self._origins[:, self.entries]

    @property
    def entries(self) -> NDArray[np.int64]:
        """Return the entry of each slot, int64 [length]."""
        return self._entries[: self.length]

    @property
    def visible(self) -> NDArray[np.int64]:
        """Return int64 [batch, size]: 1 for entries of slots other than padding."""
        return self._table[_VISIBLE, :, : self.size]

    @property
    def counted(self) -> NDArray[np.int64]:
        """Return int64 [batch]: the number of slots other than padding."""
        return self._counted

    def tokens(self, start: int = 0, stop: int | None = None) -> Tokens:
        """Return the contents of a range of slots.

        Args:
            start: The first slot.
            stop: The end of the range, exclusive; by default `length`.
        """
        tokens = self._table[:, :, self.entries[start:stop]]
        return Tokens(tokens[_IDS], tokens[_MASK], tokens[_POSITIONS:].reshape(*self._axes, *tokens.shape[1:]))

    def append(self, tokens: Tokens, parents: NDArray[np.int64] | None = None) -> None:
        """Append slots, each with a new entry at the end.

        Args:
            tokens: Contents of the new slots.
            parents: Index of each token's parent in ``tokens``, int64 [length], -1 for the last old slot; by default
                the token before.
        """
        count = tokens.length
        self._make_room(count)
        new = slice(self.size, self.size + count)
        last = self._origins[0, self._entries[self.length - 1]] if self.length else 0
        before = np.arange(-1, count - 1) if parents is None else parents
        self._origins[0, new] = np.arange(self._next, self._next + count)
        self._origins[1, new] = np.where(before < 0, last, self._next + before)
        self._next += count
        self._table[_IDS, :, new] = tokens.ids
        self._table[_VISIBLE:_POSITIONS, :, new] = tokens.mask
        self._table[_POSITIONS:, :, new] = tokens.positions
        if not self.in_place:
            self._entries[self.length : self.length + count] = np.arange(new.start, new.stop)
        self._counted = self._counted + tokens.mask.sum(axis=1)
        self.size += count
        self.length += count
        self._used += count

    @classmethod
    def holding(cls, tokens: Tokens, origins: NDArray[np.int64]) -> Slots:
        """Return slots with given contents; slot i has entry i.

        Args:
            tokens: Contents of the slots.
            origins: The `origins` of the slots, int64 [2, length].
        """
        slots = cls(len(tokens.ids), tokens.positions.shape[:-2])
        slots.append(tokens)
        slots._origins[:, : tokens.length] = origins
        slots._next = int(origins.max(initial=0)) + 1
        return slots

    def keep(self, length: int) -> None:
        """Drop the slots from ``length`` on."""
        dropped = self._entries[length : self.length]
        self._counted = self._counted - self._table[_MASK][:, dropped].sum(axis=1)
        np.subtract.at(self._uses, dropped, 1)
        unused = np.unique(dropped[self._uses[dropped] == 0])
        self._table[_VISIBLE][:, unused] = 0
        self._used -= len(unused)
        self.length = length
        self.in_order = self.in_order or self._is_in_order()

    def reorder(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> None:
        """Map slots to entries of other slots.

        Args:
            sources: Slots whose entries are read before any slot is mapped, int64 [n].
            destinations: Slots that are mapped to these entries, in the same order, int64 [n].
        """
        entries = self.entries.copy()
        entries[destinations] = self.entries[sources]
        self.hold(entries)

    def mask_as(self, mask: NDArray[np.int64]) -> None:
        """Replace the mask of all slots, int64 [batch, length]."""
        self._table[_MASK][:, self.entries] = mask
        self._table[_VISIBLE][:, self.entries] = mask
        self._counted = mask.sum(axis=1)

    def state(self) -> SlotState:
        """Return the current map and mask, for `back_to`."""
        return SlotState(self.entries.copy(), self._table[_MASK][:, self.entries])

    def back_to(self, earlier: SlotState) -> None:
        """Restore ``earlier``, which is invalid once entries moved or rows changed."""
        self.hold(earlier.entries)
        self.mask_as(earlier.mask)

    def hold(self, entries: NDArray[np.int64]) -> None:
        """Map slot i to ``entries[i]``."""
        self.length = len(entries)
        self._entries[: self.length] = entries
        self._uses[: self.size] = 0
        np.add.at(self._uses, entries, 1)
        used = self._uses[: self.size] > 0
        self._used = int(used.sum())
        self.in_order = self._is_in_order()
        self._table[_VISIBLE, :, : self.size] = np.where(used, self._table[_MASK, :, : self.size], 0)
        self._counted = self._table[_MASK][:, entries].sum(axis=1)

    def select(self, rows: NDArray[np.int64]) -> None:
        """Continue row i from row ``rows[i]``."""
        self._table = self._table[:, rows]
        self._counted = self._counted[rows]
        self.batch = len(rows)

    def sort(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Sort entries in the order of their slots, one per slot, with the fewest moves.

        After a reorder without trimming, only the reordered entries move.

        Returns:
            Source and destination entries, int64 [n] each.
        """
        unused = np.flatnonzero(self._uses[: self.size] == 0)
        used = np.flatnonzero(self._uses[: self.size])
        wanted = np.sort(np.concatenate([used, unused[: self.length - len(used)]]))
        moved = np.flatnonzero(self.entries != wanted)
        sources, destinations = self.entries[moved], wanted[moved]
        self._table[:, :, destinations] = self._table[:, :, sources]
        self._origins[:, destinations] = self._origins[:, sources]
        self.hold(wanted)
        return sources, destinations

    def compact(self) -> NDArray[np.int64]:
        """Map slot i to entry i, without waste.

        Returns:
            int64 [length]: the old entry from which each entry has to be gathered.
        """
        entries = self.entries.copy()
        self._table[:, :, : self.length] = self._table[:, :, entries]
        self._origins[:, : self.length] = self._origins[:, entries]
        self._table[_VISIBLE, :, : self.length] = self._table[_MASK, :, : self.length]
        self.size = self.length
        self._entries = np.arange(len(self._entries))
        self._uses[:] = 1
        self._used = self.length
        self.in_order = True
        return entries

    def _is_in_order(self) -> bool:
        return bool((np.diff(self.entries) > 0).all())

    def _make_room(self, count: int) -> None:
        room = len(self._entries)
        while room < max(self.size, self.length) + count:
            room *= 2
        more = room - len(self._entries)
        if more:
            self._entries = np.concatenate([self._entries, np.arange(room - more, room)])
            self._uses = np.pad(self._uses, (0, more), constant_values=1)
            self._table = np.pad(self._table, ((0, 0), (0, 0), (0, more)))
            self._origins = np.pad(self._origins, ((0, 0), (0, more)))


def indices(values: ArrayLike, limit: int, name: str, error_id: str) -> NDArray[np.int64]:
    """Return ``values`` as int64 [n], checked to be in ``[0, limit)``.

    Args:
        values: Integers, [n].
        limit: The smallest invalid index.
        name: Name of the list in messages.
        error_id: Id of the error.

    Raises:
        UsageError: ``values`` is not a list of integers, or an index is out of range.
    """
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(error_id, f"{name} must be a list of whole numbers, not {array.dtype} {list(array.shape)}")
    array = array.astype(np.int64)
    wrong = array[(array < 0) | (array >= limit)]
    if wrong.size:
        there = f"expected 0 to {limit - 1}" if limit else "there are none"
        raise UsageError(error_id, f"index {int(wrong[0])} in {name} is out of range: {there}")
    return array
