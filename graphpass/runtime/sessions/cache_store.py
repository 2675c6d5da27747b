"""Run a model, and read, write and reorder its caches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphpass.analysis.caches.encoders import is_encoder
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import find_step_tokens
from graphpass.errors import UnsupportedError, UsageError
from graphpass.ir.inputs import token_input
from graphpass.ir.values import fixed_size
from graphpass.runtime.sessions.inputs import InputPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.compaction import CompactionPolicy
    from graphpass.runtime.sessions.inputs import Array, StepInputs
    from graphpass.runtime.sessions.slots import Slots
    from graphpass.runtime.sessions.tokens import Tokens


class CacheStore(ABC):
    """One model in one runtime, with the caches of a session.

    Attributes:
        model: The model.
        inventory: Caches of the model.
        inputs: Feeds of the inputs other than caches.
        outputs: Names of the outputs other than caches and inputs that are returned unchanged.
        takes_mask: Whether an ``attention_mask`` of all positions can exclude padding.
        growing: Caches with one entry per position.
        fixed: Caches of fixed size, windows included.
        unsorted: Caches of unknown kind; only their rows can be gathered.
        adapters: Variables with adapter weights.
        bytes_copied: Total bytes of caches that were read or written.
        growing_sealed: Whether entries of growing caches cannot be read or moved; edits recompute their tokens.
        fixed_sealed: Whether caches of fixed size cannot be read.
        gathers_rows: Whether rows of growing caches can be gathered although ``growing_sealed`` is set.
        mixes_rows: Whether the runtime applies ``beam_idx`` incorrectly.
        keeps_batch: Whether ``beam_idx`` cannot change the number of rows.
        last_only: Whether the runtime returns logits of the last token only.
        moves_slots: Whether slots may be reordered even if a recomputation has other results.
        takes_any_positions: Whether positions may differ from the numbers of their slots.
        sees_entries: Whether the runtime treats entry i as position i, regardless of the model.
        compacts_only: Whether entries can be moved only by gathering whole caches.
        replays: Whether a model without caches is fed the whole history at each step.
        is_encoder: Whether each token attends to all others.
    """

    #: Number of steps with one wasted entry that cost as much as gathering one entry; see `CompactionPolicy`.
    steps_per_copy: ClassVar[float]

    last_only = False
    moves_slots = True
    takes_any_positions = True
    sees_entries = False
    compacts_only = False
    replays = False

    def __init__(self, model: Model, inventory: Inventory) -> None:
        """Plan the feeds; subclasses open the runtime. Raises as `graphpass.runtime.open_session`."""
        step_tokens = find_step_tokens(model, inventory)
        self.model, self.inventory = model, inventory
        self.inputs = InputPlan(model.inputs, inventory, step_tokens)
        passed = {None if inventory.stateful else cache.write for cache in inventory.caches}
        self.outputs = tuple(port.name for port in model.outputs if port.name not in passed | step_tokens.returned)
        self.takes_mask = self.inputs.takes_mask
        self.is_encoder = model.analysis(is_encoder)
        windows = inventory.windowed
        self.growing = tuple(cache for cache in inventory.of_kind("kv") if cache.name not in windows)
        # A window drops entries for good, so it cannot be rewound and counts as a state.
        self.fixed = tuple(
            cache
            for cache in inventory.caches
            if (cache.kind in {"linear", "other"} or cache.name in windows)
            and cache.write is not None
            and cache.role != "adapter"
        )
        self.unsorted = tuple(cache for cache in inventory.of_kind("unknown") if cache.write is not None)
        self.adapters = tuple(cache for cache in inventory.caches if cache.role == "adapter")
        self.bytes_copied = 0
        self.growing_sealed = self.fixed_sealed = self.gathers_rows = self.mixes_rows = self.keeps_batch = False

    @property
    def logits_output(self) -> str:
        """Return the name of the logits output: ``logits``, or the only output.

        Raises:
            UnsupportedError: GP324, none of several outputs is called ``logits``.
        """
        name = self.outputs[0] if len(self.outputs) == 1 or self.is_encoder else "logits"
        if name not in self.outputs:
            raise UnsupportedError("GP324", f"no output is called logits: {', '.join(self.outputs) or 'there is none'}")
        return name

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """Return the names of the variables with adapter weights."""
        return tuple(cache.name for cache in self.adapters)

    @abstractmethod
    def run(self, step: StepInputs) -> dict[str, Array]:
        """Run the model once, and store its caches.

        Returns:
            The other outputs by name, in their element types.
        """

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Return the settings of the runtime that affect the contents of caches."""

    def runs(self, past: int, length: int, batch: int) -> list[int]:
        """Split a step into runs of the model.

        Args:
            past: Number of entries in the caches before the step.
            length: Number of new tokens of each row.
            batch: Number of rows.

        Returns:
            The number of tokens in each run.

        Raises:
            UnsupportedError: GP323, the model has a fixed length, and ``length`` is not a multiple of it.
        """
        size = self.inputs.tokens_at_once(past, length, batch)
        if length % size:
            raise UnsupportedError("GP323", f"the model accepts multiples of {size} tokens, got {length} tokens")
        return [size] * (length // size)

    def check_room(self, count: int, length: int) -> None:  # noqa: B027 - few refuse or do anything
        """Check that new tokens fit; by default any number does.

        Args:
            count: Number of new tokens of each row.
            length: Number of slots before them.

        Raises:
            UsageError: GP267, the tokens do not fit.
        """

    def check_mask(self, mask: ArrayLike) -> None:
        """Check that the model and the runtime support an ``attention_mask``.

        Args:
            mask: 1 for tokens, 0 for padding, ``[batch, positions]``.

        Raises:
            UnsupportedError: GP376, the runtime does not support padding, or the model has no input for the mask.
        """
        if not self.inputs.reads_mask and not np.all(mask):
            message = "the model has no input attention_mask, so that padding would be read as tokens"
            raise UnsupportedError("GP376", message, "feed rows of one length, or export the model with this input")

    def check_positions(self, tokens: Tokens, length: int) -> None:  # noqa: B027 - few refuse or do anything
        """Check that the runtime supports the positions of new tokens; by default it supports all.

        Args:
            tokens: The new tokens.
            length: Number of slots before them.

        Raises:
            UnsupportedError: GP376, the runtime does not support a position.
        """

    def check_editable(self) -> None:
        """Raise if the contents of a cache after an edit are unknown; see `check_editable`."""
        check_editable(self.inventory)

    def must_replay(self, slots: Slots, policy: CompactionPolicy) -> bool:
        """Return whether to recompute tokens, because their entries have to move and cannot.

        Args:
            slots: The map of slots to entries before the step.
            policy: Decides whether entries have to move.
        """
        return self.growing_sealed and not self.inputs.takes_moves and policy.must_move(slots)

    @abstractmethod
    def forget(self) -> None:
        """Empty the caches."""

    @abstractmethod
    def read(self, cache: Cache) -> Array:
        """Return the contents of a cache; the array may be the runtime's own memory.

        Returns:
            The contents in the cache's axes and element type.

        Raises:
            UnsupportedError: GP370, the runtime does not expose them.
        """

    @abstractmethod
    def write(self, cache: Cache, value: Array) -> None:
        """Set the contents of a cache.

        Args:
            cache: One of the model's caches.
            value: New contents in the cache's axes and element type; the caller must not change the array afterwards.

        Raises:
            UnsupportedError: GP370, the runtime does not expose them.
        """

    def move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64], size: int) -> None:  # noqa: B027 - few refuse or do anything
        """Copy entries of growing caches; all are read before any is written.

        Args:
            sources: Indices of the entries, int64 [n].
            destinations: New index of each entry, int64 [n].
            size: Number of entries in the caches.
        """

    def gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None) -> None:
        """Gather entries and rows of caches.

        Args:
            entries: Entry of growing caches from which each new entry is gathered, int64 [length]; ``None`` keeps all.
            rows: Row of all caches from which each new row is gathered, int64 [batch]; ``None`` keeps all.
        """
        for cache in self.inventory.caches:
            if cache in self.growing and entries is not None:
                assert cache.axes.sequence is not None
                value = self.read(cache).take(entries, axis=cache.axes.sequence)
            elif rows is not None and cache in (*self.growing, *self.fixed, *self.unsorted):
                value = self.read(cache)
            else:
                continue
            if rows is not None and cache.axes.batch is not None:
                value = value.take(rows, axis=cache.axes.batch)
            self.put(cache, value)

    def read_growing(self, entries: NDArray[np.int64]) -> dict[str, Array]:
        """Return copies of entries of growing caches, by cache name.

        Args:
            entries: Indices along the sequence axis, int64 [n].
        """
        contents = {}
        for cache in self.growing:
            assert cache.axes.sequence is not None
            contents[cache.name] = self.read(cache).take(entries, axis=cache.axes.sequence)
        self.bytes_copied += sum(content.nbytes for content in contents.values())
        return contents

    def read_fixed(self, rows: NDArray[np.int64] | None) -> dict[str, Array]:
        """Return copies of caches of fixed size, by cache name.

        Args:
            rows: Indices along the batch axis, int64 [n]; ``None`` copies all rows.
        """
        states = {}
        for cache in self.fixed:
            state, axis = self.read(cache), cache.axes.batch
            states[cache.name] = state.copy() if rows is None or axis is None else state.take(rows, axis)
        self.bytes_copied += sum(state.nbytes for state in states.values())
        return states

    def put(self, cache: Cache, value: Array) -> None:
        """See `write`; adds the bytes to `bytes_copied`."""
        self.bytes_copied += value.nbytes
        self.write(cache, value)


def stored_caches(model: Model) -> Inventory:
    """Return the caches of ``model``; states shared by all rows have no batch axis."""
    inventory = model.analysis(analyze_caches)
    if fixed_size(token_input(model.graph), 0) is not None:
        return inventory
    return replace(inventory, caches=tuple(map(_without_fixed_rows, inventory.caches)))


def _without_fixed_rows(cache: Cache) -> Cache:
    axis = cache.axes.batch
    if cache.kind not in {"linear", "unknown"}:
        return cache
    return cache if cache.size(axis) is None else replace(cache, axes=replace(cache.axes, batch=None))


def require_room(count: int, length: int, capacity: int) -> None:
    """Raise if new tokens do not fit into caches of fixed capacity.

    Args:
        count: Number of new tokens of each row.
        length: Number of slots before them.
        capacity: Number of slots.

    Raises:
        UsageError: GP267, the tokens do not fit.
    """
    if length + count <= capacity:
        return
    more = "or convert the model again with a larger capacity"
    if not length:
        message = f"a prompt of {count} tokens does not fit: the capacity is {capacity}"
        raise UsageError("GP267", message, f"shorten the prompt, {more}")
    reason = f"{count} more tokens do not fit: {length} of {capacity} positions are taken"
    raise UsageError("GP267", reason, f"rewind or reset, {more}")


def check_editable(inventory: Inventory, *, written_in_place: bool = False) -> None:
    """Raise if the contents of a cache after an edit are unknown.

    Args:
        inventory: The caches.
        written_in_place: Whether slot i of caches of fixed capacity is known to hold position i.

    Raises:
        UnsupportedError: GP370, a cache is of unknown kind; or a ``kv`` cache is of fixed capacity, so that it may lack
            entries of some positions.
    """  # noqa: DOC501 - does_not_grow is an UnsupportedError
    windows = inventory.windowed
    for cache in inventory.caches:
        if cache.kind == "unknown":
            raise UnsupportedError("GP370", f"cannot edit cache {cache.name}: its kind is unknown")
        grows = written_in_place or (cache.axes.sequence is not None and cache.capacity is None)
        if cache.kind == "kv" and cache.name not in windows and not grows:
            raise does_not_grow(cache)


def does_not_grow(cache: Cache) -> UnsupportedError:
    """Return the error GP370 for a cache without one entry per position."""
    return UnsupportedError("GP370", f"cannot edit cache {cache.name}: it does not have one entry per position")
