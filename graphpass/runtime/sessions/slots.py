"""`Slots`: which of the entries that a cache holds in memory are the positions of the session, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from graphpass.runtime.sessions.inputs import Array

__all__ = ["Held", "Slots", "Tokens", "indices", "newest"]

#: Entries that the tables have room for at first; they double when full.
_ROOM = 64


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens in logical order, as they were fed.

    Attributes:
        ids: int64 [batch, length].
        mask: int64 [batch, length], 0 where a position is padding.
        positions: int64 [batch, length].
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]
    positions: NDArray[np.int64]

    @property
    def length(self) -> int:
        """How many tokens each row has."""
        return int(self.ids.shape[1])

    def part(self, start: int, stop: int) -> Tokens:
        """The tokens from ``start`` up to ``stop``."""
        new = slice(start, stop)
        return Tokens(self.ids[:, new], self.mask[:, new], self.positions[:, new])

    def rows(self, rows: NDArray[np.int64]) -> Tokens:
        """The tokens of these rows."""
        return Tokens(self.ids[rows], self.mask[rows], self.positions[rows])

    def then(self, later: Tokens) -> Tokens:
        """These tokens and ``later`` ones."""
        return Tokens(
            np.concatenate([self.ids, later.ids], axis=1),
            np.concatenate([self.mask, later.mask], axis=1),
            np.concatenate([self.positions, later.positions], axis=1),
        )


@dataclass(frozen=True, slots=True)
class Held:
    """Slots as they were at some time, while the caches still hold their entries."""

    entries: NDArray[np.int64]
    mask: NDArray[np.int64]


class Slots:
    """Logical slots 0..length-1 on top of the physical entries 0..size-1 of the caches.

    A step appends entries. Trimming and reordering change only which entry stands for which slot; entries that stand
    for none are waste, and `visible` hides them. `compact` says how to gather the caches so that no waste is left.

    Attributes:
        batch: Rows.
        size: Entries that the caches hold.
        length: Slots.
        in_order: Whether entries stand in the order of their slots.
    """

    def __init__(self, batch: int) -> None:
        """Without entries.

        Args:
            batch: Rows.
        """
        self.batch = batch
        self.size = 0
        self.length = 0
        # Beyond what is held they say what the next entries are when nothing was edited: one a slot, in order.
        self._entries = np.arange(_ROOM)
        self._uses = np.ones(_ROOM, np.int64)
        # Ids, positions, mask and visibility of each entry, [4, batch, room].
        self._table = np.zeros((4, batch, _ROOM), np.int64)
        self._counted = np.zeros(batch, np.int64)
        self._used = 0
        self.in_order = True

    @property
    def waste(self) -> int:
        """Entries that stand for no slot."""
        return self.size - self._used

    @property
    def shares(self) -> bool:
        """Whether an entry stands for two slots: attention would see it once instead of twice."""
        return self._used < self.length

    @property
    def in_place(self) -> bool:
        """Whether entry i is slot i, and there is no waste."""
        return self.size == self.length and self.in_order

    @property
    def entries(self) -> NDArray[np.int64]:
        """The entry of each slot, int64 [length]."""
        return self._entries[: self.length]

    @property
    def visible(self) -> NDArray[np.int64]:
        """int64 [batch, size]: 1 where an entry stands for a slot that is no padding."""
        return self._table[3, :, : self.size]

    @property
    def counted(self) -> NDArray[np.int64]:
        """int64 [batch]: slots that are no padding."""
        return self._counted

    def tokens(self, start: int = 0, stop: int | None = None) -> Tokens:
        """What stands in the slots from ``start`` up to ``stop``, or to the last one."""
        ids, positions, mask = self._table[:3, :, self.entries[start:stop]]
        return Tokens(ids, mask, positions)

    def append(self, tokens: Tokens) -> None:
        """Take new slots at the end, of new entries at the end."""
        count = tokens.length
        self._make_room(count)
        new = slice(self.size, self.size + count)
        self._table[0, :, new] = tokens.ids
        self._table[1, :, new] = tokens.positions
        self._table[2:, :, new] = tokens.mask
        if not self.in_place:
            self._entries[self.length : self.length + count] = np.arange(new.start, new.stop)
        self._counted = self._counted + tokens.mask.sum(axis=1)
        self.size += count
        self.length += count
        self._used += count

    def keep(self, length: int) -> None:
        """Drop the slots from ``length`` on."""
        dropped = self._entries[length : self.length]
        self._counted = self._counted - self._table[2][:, dropped].sum(axis=1)
        np.subtract.at(self._uses, dropped, 1)
        unused = np.unique(dropped[self._uses[dropped] == 0])
        self._table[3][:, unused] = 0
        self._used -= len(unused)
        self.length = length
        self.in_order = self.in_order or self._is_in_order()

    def reorder(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> None:
        """Slot ``destinations[i]`` takes the old entry of slot ``sources[i]``."""
        entries = self.entries.copy()
        entries[destinations] = self.entries[sources]
        self.hold(entries)

    def mask_as(self, mask: NDArray[np.int64]) -> None:
        """Take ``mask``, int64 [batch, length], for what is padding."""
        self._table[2][:, self.entries] = mask
        self._table[3][:, self.entries] = mask
        self._counted = mask.sum(axis=1)

    def held(self) -> Held:
        """How slots stand now, to come back to by `back_to`."""
        return Held(self.entries.copy(), self._table[2][:, self.entries])

    def back_to(self, held: Held) -> None:
        """Be as `held` said, if nothing was compacted since and the rows are the same."""
        self.hold(held.entries)
        self.mask_as(held.mask)

    def hold(self, entries: NDArray[np.int64]) -> None:
        """Let ``entries`` stand for the slots."""
        self.length = len(entries)
        self._entries[: self.length] = entries
        self._uses[: self.size] = 0
        np.add.at(self._uses, entries, 1)
        used = self._uses[: self.size] > 0
        self._used = int(used.sum())
        self.in_order = self._is_in_order()
        self._table[3, :, : self.size] = np.where(used, self._table[2, :, : self.size], 0)
        self._counted = self._table[2][:, entries].sum(axis=1)

    def select(self, rows: NDArray[np.int64]) -> None:
        """Row i goes on with what row ``rows[i]`` held."""
        self._table = self._table[:, rows]
        self._counted = self._counted[rows]
        self.batch = len(rows)

    def sort(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Let entries stand in the order of their slots, one for each, by moving as few as that takes.

        Where slots were reordered and none dropped, those that were named move, and no others.

        Returns:
            int64 [n] each: entries, and where their old values belong.
        """
        unused = np.flatnonzero(self._uses[: self.size] == 0)
        used = np.flatnonzero(self._uses[: self.size])
        wanted = np.sort(np.concatenate([used, unused[: self.length - len(used)]]))
        moved = np.flatnonzero(self.entries != wanted)
        sources, destinations = self.entries[moved], wanted[moved]
        self._table[:, :, destinations] = self._table[:, :, sources]
        self.hold(wanted)
        return sources, destinations

    def compact(self) -> NDArray[np.int64]:
        """Make entry i stand for slot i.

        Returns:
            int64 [length]: the old entry that each entry has to be gathered from.
        """
        entries = self.entries.copy()
        self._table[:, :, : self.length] = self._table[:, :, entries]
        self._table[3, :, : self.length] = self._table[2, :, : self.length]
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


def indices(values: ArrayLike, limit: int, what: str, error_id: str) -> NDArray[np.int64]:
    """``values`` as int64 [n], each of them from 0 up to ``limit``.

    Args:
        values: Whole numbers.
        limit: The first number that is too large.
        what: What they are, for the message.
        error_id: Of the error.

    Raises:
        UsageError: They are something else.
    """
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UsageError(error_id, f"{what} must be a list of whole numbers, not {array.dtype} {list(array.shape)}")
    array = array.astype(np.int64)
    wrong = array[(array < 0) | (array >= limit)]
    if wrong.size:
        there = f"there are 0 to {limit - 1}" if limit else "there are none"
        raise UsageError(error_id, f"{what} names {int(wrong[0])}, but {there}")
    return array


def newest(results: Sequence[dict[str, Array]], runs: Sequence[int], length: int) -> dict[str, Array]:
    """What runs of a model say of the last ``length`` tokens that were fed.

    Args:
        results: The outputs of each run, by name.
        runs: How many tokens each run took.
        length: At least 1.

    Returns:
        Of each output what it says of these tokens, one after another along axis 1; where it does not say something of
        each token of a run (axis 1 is no longer than that), all that this run gave, and nothing of those before it.
    """
    if len(runs) == 1 and runs[0] == length:
        return results[0]
    return {name: _newest([result[name] for result in results], runs, length) for name in results[-1]}


def _newest(outputs: Sequence[Array], runs: Sequence[int], length: int) -> Array:
    found: list[Array] = []
    for output, size in zip(reversed(outputs), reversed(runs), strict=True):
        of_each = output.ndim > 1 and output.shape[1] == size
        found.append(output[:, -min(size, length) :] if of_each else output)
        length -= size
        if length <= 0 or not of_each:
            break
    return found[0] if len(found) == 1 else np.concatenate(found[::-1], axis=1)
