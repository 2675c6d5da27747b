"""Edit the caches of a session between steps."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from graphpass.analysis.lengths.past_order import past_order
from graphpass.errors import UnsupportedError, UsageError
from graphpass.ir.types import is_fixed
from graphpass.runtime.sessions.adapters import adapter_values
from graphpass.runtime.sessions.checkpoints import SPARSE, Checkpoints, Snapshot, StepHistory
from graphpass.runtime.sessions.compaction import CompactionPolicy
from graphpass.runtime.sessions.slots import Slots, indices
from graphpass.runtime.sessions.stats import SessionStats
from graphpass.runtime.sessions.token_reader import TokenReader
from graphpass.runtime.sessions.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from graphpass.runtime.sessions.cache_store import CacheStore
    from graphpass.runtime.sessions.inputs import Array


class EditableSession:
    """A session whose caches can be edited between steps.

    Slots 0 to ``length - 1`` are the positions in the order of attention. `Slots` maps them to entries of the growing
    caches. An edit changes only this map; `_arrange` moves entries before a step if the model requires it. Linear
    caches are set to a checkpoint; the tokens after it are owed, that is, fed again with the next ones.

    Attributes:
        store: The model with its caches.
    """

    def __init__(self, store: CacheStore) -> None:
        self.store = store
        self._inputs = inputs = store.inputs
        self._reader = TokenReader(inputs)
        may_hide = bool(store.growing) and inputs.takes_mask and not store.sees_entries
        order = functools.partial(store.model.analysis, past_order)
        self._compaction = CompactionPolicy(order if may_hide else lambda: "index", store.steps_per_copy)
        self._checkpoints = Checkpoints()
        self._steps = StepHistory(store.inventory)
        self._snapshots: weakref.WeakSet[Snapshot] = weakref.WeakSet()
        self._compactions = self._replayed = 0
        self._begin()

    def _begin(self) -> None:
        self._reader.forget()
        self._slots: Slots | None = None
        self._owed: Tokens | None = None
        self._rows: NDArray[np.int64] | None = None
        self._drafting_until = 0
        self._last: dict[str, Array] = {}
        self._life = object()
        self._checkpoints.kept = ()
        self._steps.clear()

    @property
    def batch(self) -> int:
        """Return the number of rows; 0 before the first forward pass."""
        return 0 if self._slots is None else self._slots.batch

    @property
    def length(self) -> int:
        """Return the number of positions so far, padding included."""
        length = 0 if self._slots is None else self._slots.length
        return length + (0 if self._owed is None else self._owed.length)

    @property
    def stats(self) -> SessionStats:
        """Return the costs of edits so far."""
        return SessionStats(
            self.store.bytes_copied,
            self._compactions,
            len(self._checkpoints.kept),
            self._checkpoints.bytes + sum(snapshot.bytes for snapshot in self._snapshots),
            self._replayed,
        )

    def reset(self) -> None:
        """Forget all tokens; the next forward pass may have another batch."""
        self._begin()
        self.store.forget()

    @property
    def adapters(self) -> tuple[str, ...]:
        """Return the names of the variables with adapter weights."""
        return self.store.adapter_names

    def set_adapters(self, weights: Mapping[str, ArrayLike]) -> None:
        """Set adapter weights; `reset` does not change them.

        The session's tokens are recomputed with the next ones.

        Args:
            weights: Values by variable name, in the variable's shape, cast to its element type. Other variables are
                unchanged.

        Raises:
            UsageError: GP251, a name is not in `adapters`, or a value has another shape.
            UnsupportedError: GP370, slots were reordered, and recomputation would have other results.
        """
        values = adapter_values(self.store.adapters, weights)
        if values and self._slots is not None:
            self._check_history(self._slots)
        for adapter, value in values:
            self.store.put(adapter, value)
        if values:
            self._life = object()
            self._owe_all()

    def trim(self, count: int) -> None:
        """Drop the last ``count`` slots.

        Raises:
            UsageError: GP245, ``count`` is negative or exceeds `length`.
            UnsupportedError: As `rewind`.
        """
        if not 0 <= count <= self.length:
            raise UsageError("GP245", f"cannot trim {count} of {self.length} positions")
        self.rewind(self.length - count)

    def rewind(self, length: int) -> None:
        """Keep the first ``length`` slots.

        Linear caches are set to the nearest checkpoint; the tokens after it are fed again with the next ones.

        Raises:
            UsageError: GP245, ``length`` is negative or exceeds the session's `length`.
            UnsupportedError: GP370, the model has caches that cannot be edited; GP322 as `forward`.
        """
        if not 0 <= length <= self.length:
            raise UsageError("GP245", f"cannot rewind to {length}: the session has {self.length} positions")
        slots = self._slots
        if slots is None or length == self.length:
            return
        self.store.check_editable()
        self._drafting_until = length + SPARSE
        if length >= slots.length:
            assert self._owed is not None
            self._owed = self._owed.part(0, length - slots.length) if length > slots.length else None
            return
        self._owed = None
        if length == 0:
            self._start_over(slots.batch)
        elif self.store.fixed:
            self._go_back(slots, length)
        else:
            slots.keep(length)

    def reorder(self, sources: ArrayLike, destinations: ArrayLike) -> None:
        """Copy the old value of slot ``sources[i]`` into slot ``destinations[i]``, in all rows.

        An entry keeps the position that it was computed for, so its new slot must be that of the same position: for a
        token of a draft tree, the slot of its depth.

        Args:
            sources: Slots, int [n].
            destinations: Distinct slots, int [n].

        Raises:
            UsageError: GP244, a slot does not exist, the lists differ in length, or a destination occurs twice.
            UnsupportedError: GP370, the model has caches that cannot be reordered.
        """
        source = indices(sources, self.length, "reorder: src", "GP244")
        destination = indices(destinations, self.length, "reorder: dst", "GP244")
        if len(source) != len(destination):
            raise UsageError("GP244", f"reorder: {len(source)} sources, but {len(destination)} destinations")
        if len(np.unique(destination)) != len(destination):
            raise UsageError("GP244", f"reorder: a destination is named twice in {destination.tolist()}")
        if self._slots is None or (source == destination).all():
            return
        self.store.check_editable()
        if self.store.fixed:
            raise UnsupportedError(
                "GP370",
                f"cannot reorder slots: cache {self.store.fixed[0].name} has one state, not one entry per token",
                "rewind, and feed the tokens in their new order",
            )
        self._slots.reorder(source, destination)

    def select(self, beam_idx: ArrayLike) -> None:
        """Continue row i from row ``beam_idx[i]``; there may be more or fewer rows than before.

        Raises:
            UsageError: GP246, a row does not exist, ``beam_idx`` is empty, or its length is not the model's fixed
                batch.
            UnsupportedError: GP370, the runtime does not expose caches, and slots were reordered; or the batch axis
                of a cache is unknown, see `select_miss`.
        """
        rows = indices(beam_idx, self.batch, "select: beam_idx", "GP246")
        if not rows.size:
            raise UsageError("GP246", "select: beam_idx is empty")
        if self._inputs.batch not in (None, len(rows)):
            raise UsageError("GP246", f"select: the model has a fixed batch of {self._inputs.batch}, got {len(rows)}")
        slots = self._slots
        assert slots is not None
        if len(rows) == slots.batch and (rows == np.arange(len(rows))).all():
            return
        fits = not self.store.mixes_rows and (len(rows) == slots.batch or not self.store.keeps_batch)
        by_model = self._inputs.takes_rows and fits
        if not by_model and (miss := self.select_miss) is not None:
            raise UnsupportedError("GP370", miss)
        if self.store.growing_sealed and not (by_model or self.store.gathers_rows):
            self._check_history(slots)
        self._copy_snapshots()
        batch = slots.batch
        slots.select(rows)
        self._owed = None if self._owed is None else self._owed.rows(rows)
        # A scalar or an output of fixed size is shared by all rows.
        self._last = {
            name: output[rows] if output.ndim and len(output) == batch else output
            for name, output in self._last.items()
        }
        self._checkpoints.select(
            rows, {cache.name: cache.axes.batch for cache in self.store.fixed if cache.axes.batch is not None}
        )
        if slots.size:
            self._rows = rows if self._rows is None else self._rows[rows]
            if not by_model:
                self._settle_rows()

    @property
    def select_miss(self) -> str | None:
        """Return the reason why the session cannot gather rows itself; ``None`` if it can."""
        # A cache of static shape is shared by all rows.
        unknown = next(
            (cache.name for cache in self.store.unsorted if cache.axes.batch is None and not is_fixed(cache.shape)),
            None,
        )
        return None if unknown is None else f"cannot select rows: the batch axis of cache {unknown} is not known"

    def restore(self, snapshot: Snapshot) -> None:
        """Return the session to ``snapshot``, which can be restored again.

        Raises:
            UsageError: GP248, the snapshot is from another session, or from before a reset or a change of adapters.
        """
        if snapshot.life is not self._life or self._slots is None:
            message = "the snapshot is from another session, or from before a reset or a change of adapters"
            raise UsageError("GP248", message, "take a new snapshot")
        self._owed = None
        self._drafting_until = snapshot.length + SPARSE
        if not snapshot.length:
            self._start_over(len(snapshot.tokens.ids))
            self._last = snapshot.outputs
            return
        if snapshot.slots is not None:
            self._settle_rows()
            self._slots.back_to(snapshot.slots)
        elif self.store.growing_sealed or self.store.fixed_sealed:
            self._start_over(len(snapshot.tokens.ids))
            self._owed, self._last = snapshot.tokens, snapshot.outputs
            return
        else:
            self._copy_snapshots()
            self._rows = None
            self._slots = Slots.holding(snapshot.tokens, snapshot.origins)
            for cache in self.store.growing:
                self.store.put(cache, snapshot.copies[cache.name].copy())
        self._write_fixed(snapshot.states)
        self._checkpoints.kept = snapshot.checkpoints
        self._last = snapshot.outputs

    def align(self, history: ArrayLike, position_ids: ArrayLike | None = None) -> NDArray[Any]:
        """Keep the common prefix with a new history, and drop the rest.

        Embeddings are compared by content hash.

        Args:
            history: Token ids [batch, length], or [length] for one sequence; without padding. Models with input
                ``inputs_embeds``: [batch, length, hidden], or [length, hidden].
            position_ids: Positions of the history, as in `DecodeSession.forward`; by default from 0 on.

        Returns:
            The tokens to feed next, at least the last one of each row: int64 [batch, n], or embeddings
            [batch, n, hidden].

        Raises:
            UsageError: GP241, the history is empty, or the positions have another shape.
            UnsupportedError: As `rewind`.
        """
        tokens = self._reader.in_rows(history)
        ids = self._reader.ids(tokens, "a history", self._ids_in_use)
        expected = np.arange(ids.shape[1]) if position_ids is None else self._reader.positions(position_ids, ids.shape)
        if self._slots is None or len(ids) != self.batch:
            self.reset()
            return tokens
        known = self._slot_tokens()
        shorter = min(known.length, ids.shape[1] - 1)
        known = known.part(0, shorter)
        # A token at another position attended to other tokens.
        in_place = known.positions == expected[..., :shorter]
        in_place = in_place.all(axis=tuple(range(in_place.ndim - 2)))
        same = (in_place & (known.mask == 1) & (known.ids == ids[:, :shorter])).all(axis=0)
        common = shorter if same.all() else int(same.argmin())
        if common:
            self.rewind(common)
        else:
            self.reset()
        return tokens[:, common:]

    def _ids_in_use(self) -> Iterator[NDArray[np.int64]]:
        """Yield the tokens that may be fed again."""
        if self._slots is not None:
            yield self._slot_tokens().ids
        for snapshot in self._snapshots:
            if snapshot.life is self._life:
                yield snapshot.tokens.ids

    def _slot_tokens(self) -> Tokens:
        assert self._slots is not None
        tokens = self._slots.tokens()
        return tokens if self._owed is None else tokens.then(self._owed)

    def _go_back(self, slots: Slots, length: int) -> None:
        """Set linear caches to the nearest checkpoint, and owe the tokens after it."""
        self._checkpoints.drop_after(length)
        start_of_step = self._steps.back(length)
        if start_of_step is not None:
            self._owed = slots.tokens(start_of_step, length)
            slots.keep(start_of_step)
            return
        is_lost = self.store.growing_sealed and self._rows is not None
        nearest = None if is_lost else self._checkpoints.nearest(length)
        start = 0 if nearest is None else nearest.length
        self._owed = slots.tokens(start, length) if length > start else None
        if nearest is not None:
            slots.keep(start)
            self._settle_rows()
            self._write_fixed(nearest.states)
        else:
            self._start_over(slots.batch)

    def _owe_all(self) -> None:
        """Empty the caches, and owe all tokens."""
        slots = self._slots
        if slots is not None:
            self._check_history(slots)
            self._owed = self._slot_tokens()
            self._start_over(slots.batch)

    def _start_over(self, batch: int) -> None:
        self._copy_snapshots()
        self.store.forget()
        self._rows = None
        self._checkpoints.kept = ()
        self._steps.clear()
        self._slots = Slots(batch, self._inputs.axes)

    def _arrange(self, slots: Slots) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Move entries for the next step.

        Returns:
            Sources and destinations that the model moves, int64 [n] each; empty if it does not.
        """
        if not slots.in_place and self._inputs.takes_moves:
            self._copy_snapshots()
            entries = slots.compact()
            moved = np.flatnonzero(entries != np.arange(len(entries)))
            return entries[moved], moved
        if self._compaction.wants_sorting(slots):
            self._sort(slots)
        if not slots.in_place and not self._compaction.fits(slots):
            self._compact(slots)
        none = np.zeros(0, np.int64)
        return none, none

    def _sort(self, slots: Slots) -> None:
        """Move entries of the growing caches into the order of their slots, one per slot."""
        if self.store.compacts_only:
            self._compact(slots)
        else:
            self._copy_snapshots()
            self.store.move(*slots.sort(), slots.size)

    def _compact(self, slots: Slots) -> None:
        self._copy_snapshots()
        self._compactions += bool(self.store.growing)
        rows, self._rows = self._rows, None
        self.store.gather(slots.compact(), rows)
        self._compaction.compacted()

    def _settle_rows(self) -> None:
        if self._rows is not None and self.store.growing_sealed and not self.store.gathers_rows:
            self._owe_all()
        elif self._rows is not None:
            rows, self._rows = self._rows, None
            self.store.gather(None, rows)

    def _copy_snapshots(self) -> None:
        assert self._slots is not None
        for snapshot in self._snapshots:
            if snapshot.life is self._life and snapshot.slots is not None:
                if not self.store.growing_sealed:
                    snapshot.copies |= self.store.read_growing(snapshot.slots.entries)
                snapshot.slots = None

    def _write_fixed(self, states: Mapping[str, Array]) -> None:
        self._steps.clear()
        for cache in self.store.fixed:
            self.store.put(cache, states[cache.name].copy())

    def _check_history(self, slots: Slots) -> None:
        if not slots.is_history:
            message = "cannot recompute the tokens: slots were reordered, and recomputation would have other results"
            hint = "rewind to before the reorder"
            if self.store.growing_sealed:
                message += ", and the runtime does not expose its caches"
                hint += ", or keep caches in another precision: KV_CACHE_PRECISION=f16"
            raise UnsupportedError("GP370", message, hint)

    def _check_handed_out(self) -> None:
        is_sealed = self.store.growing_sealed and not self.store.gathers_rows
        sealed = [*(self.store.growing if is_sealed else ()), *(self.store.fixed if self.store.fixed_sealed else ())]
        if sealed:
            message = f"cannot save or load: the runtime does not expose {sealed[0].name}"
            hint = "prefill again; on GPUs, keep caches in another precision: KV_CACHE_PRECISION=f16"
            raise UnsupportedError("GP370", message, hint)
