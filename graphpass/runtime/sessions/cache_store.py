"""Run a model, and read, write and reorder its caches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from graphpass.analysis.caches.encoders import is_encoder
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import find_step_tokens
from graphpass.errors import UnsupportedError
from graphpass.ir.inputs import token_input
from graphpass.ir.values import fixed_size
from graphpass.runtime.sessions.inputs import InputPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array, StepInputs
    from graphpass.runtime.sessions.slots import CompactionPolicy, Slots, Tokens


class CacheStore(ABC):
    """Runs one model in one runtime, and keeps its caches for a session.

    Attributes:
        model: The model.
        inventory: Its caches.
        inputs: Maker of its feeds.
        outputs: Names of the outputs that are neither caches nor inputs passed on.
        takes_mask: Whether an ``attention_mask`` of all positions can hide padding from the model.
        growing: Caches with one entry a position.
        fixed: Caches of fixed size, windows among them.
        unsorted: Caches of unknown kind, whose rows alone can be gathered.
        adapters: Variables that hold adapter weights.
        bytes_copied: Bytes of caches that were read or written.
        growing_sealed: Whether entries of growing caches cannot be moved, so that tokens are fed again.
        fixed_sealed: The same of reading caches of fixed size.
        gathers_rows: Whether rows of growing caches can be gathered all the same.
        mixes_rows: Whether the runtime mixes rows up.
        keeps_batch: Whether the model reorders rows of its caches only if there are as many as before.
        last_only: Whether the runtime returns the last token's logits alone.
        moves_slots: Whether slots may be reordered to what no feeding of tokens gives.
        takes_any_positions: Whether positions need not count slots.
        sees_entries: Whether the runtime takes entry i for position i, whatever the model does.
        compacts_only: Whether entries are moved by no less than a gather of whole caches.
        replays: Whether each step of a model without caches gets the whole history.
        is_encoder: Whether each token sees all others.
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
        # Entries that left a window do not come back, so such a cache is a state, whatever its size.
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
        """Return the name of the output that holds the logits: ``logits``, or the only one.

        Raises:
            UnsupportedError: GP324, none of several outputs is called ``logits``.
        """
        name = self.outputs[0] if len(self.outputs) == 1 or self.is_encoder else "logits"
        if name not in self.outputs:
            raise UnsupportedError("GP324", f"no output is called logits: {', '.join(self.outputs) or 'there is none'}")
        return name

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """Return the names of the variables that hold adapter weights."""
        return tuple(cache.name for cache in self.adapters)

    @abstractmethod
    def run(self, step: StepInputs) -> dict[str, Array]:
        """Run the model once, keep its caches, and return the other outputs."""

    @abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Return the settings of the runtime that decide the contents of caches."""

    def runs(self, past: int, length: int, batch: int) -> list[int]:
        """Cut ``length`` new tokens, after ``past`` entries, into runs of the model."""
        size = self.inputs.tokens_at_once(past, length, batch)
        if length % size:
            raise UnsupportedError("GP323", f"the model takes {size} tokens at a time, which {length} are not")
        return [size] * (length // size)

    def check_room(self, count: int, length: int) -> None:  # noqa: B027 - few refuse or do anything
        """Refuse ``count`` tokens that do not fit after so many others."""

    def check_mask(self, mask: ArrayLike) -> None:  # noqa: B027 - few refuse or do anything
        """Refuse a mask that the runtime cannot apply."""

    def check_positions(self, tokens: Tokens, length: int) -> None:  # noqa: B027 - few refuse or do anything
        """Refuse tokens after ``length`` others whose positions the runtime cannot take."""

    def check_editable(self) -> None:
        """Refuse caches whose contents after an edit are not known; raises as `check_editable`."""
        check_editable(self.inventory)

    def must_replay(self, slots: Slots, policy: CompactionPolicy) -> bool:
        """Return whether entries have to move in caches that the runtime does not return."""
        return self.growing_sealed and not self.inputs.takes_moves and policy.must_move(slots)

    @abstractmethod
    def forget(self) -> None:
        """Empty the caches."""

    @abstractmethod
    def read(self, cache: Cache) -> Array:
        """Return the contents of a cache, perhaps the runtime's own memory."""

    @abstractmethod
    def write(self, cache: Cache, value: Array) -> None:
        """Set a cache to ``value``, which belongs to the session from here on."""

    def move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64], size: int) -> None:  # noqa: B027 - few refuse or do anything
        """Copy some of the ``size`` entries of growing caches as if at once."""

    def gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None) -> None:
        """Keep these entries of growing caches, and these rows of all; ``None`` keeps everything."""
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
        """Return copies of these entries of growing caches."""
        contents = {}
        for cache in self.growing:
            assert cache.axes.sequence is not None
            contents[cache.name] = self.read(cache).take(entries, axis=cache.axes.sequence)
        self.bytes_copied += sum(content.nbytes for content in contents.values())
        return contents

    def read_fixed(self, rows: NDArray[np.int64] | None) -> dict[str, Array]:
        """Return copies of these rows of caches of fixed size; of all rows if ``None``."""
        states = {}
        for cache in self.fixed:
            state, axis = self.read(cache), cache.axes.batch
            states[cache.name] = state.copy() if rows is None or axis is None else state.take(rows, axis)
        self.bytes_copied += sum(state.nbytes for state in states.values())
        return states

    def put(self, cache: Cache, value: Array) -> None:
        """Set a cache as `write`, and count its bytes."""
        self.bytes_copied += value.nbytes
        self.write(cache, value)


def stored_caches(model: Model) -> Inventory:
    """Return the caches of ``model``, without batch axes of one row for all sequences."""
    inventory = model.analysis(analyze_caches)
    if fixed_size(token_input(model.graph), 0) is not None:
        return inventory
    return replace(inventory, caches=tuple(map(_without_fixed_rows, inventory.caches)))


def _without_fixed_rows(cache: Cache) -> Cache:
    axis = cache.axes.batch
    if cache.kind not in {"linear", "unknown"}:
        return cache
    return cache if cache.size(axis) is None else replace(cache, axes=replace(cache.axes, batch=None))


def check_editable(inventory: Inventory, *, written_in_place: bool = False) -> None:
    """Refuse caches whose contents after an edit are not known.

    Args:
        inventory: The caches.
        written_in_place: Whether slot i of those of fixed capacity is known to hold position i.

    Raises:
        UnsupportedError: GP370, a cache of unknown kind, or one of kind ``kv`` that lacks entries of some positions,
            since it is of fixed capacity.
    """
    windows = inventory.windowed
    for cache in inventory.caches:
        if cache.kind == "unknown":
            raise UnsupportedError("GP370", f"cannot edit cache {cache.name}: its kind is unknown")
        grows = written_in_place or (cache.axes.sequence is not None and cache.capacity is None)
        if cache.kind == "kv" and cache.name not in windows and not grows:
            raise does_not_grow(cache)


def does_not_grow(cache: Cache) -> UnsupportedError:
    """Return the error GP370 on a cache without one entry for each position."""
    return UnsupportedError("GP370", f"cannot edit cache {cache.name}: it does not grow by what is appended")
