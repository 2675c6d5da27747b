"""Sessions whose caches have room for a fixed number of positions, and stay where they are in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from graphpass.caches import Inventory
from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime.inputs import Array, InputPlan, Step, numpy_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from graphpass.caches import Cache
    from graphpass.model import Port

__all__ = ["FixedCapacitySession", "cache_memory", "check_room"]


class FixedCapacitySession(ABC):
    """Tokens in, logits out; slot i of each growing cache holds position i.

    What would not fit is refused before anything is overwritten.

    Attributes:
        capacity: How many positions fit.
        prompt: How many tokens `prefill` takes.
        caches: Those of the model that takes one step after another.
        buffers: The memory of each cache, by the name of its past; it never moves while the session lives.
    """

    def __init__(self, ports: Iterable[Port], caches: tuple[Cache, ...], capacity: int, prompt: int) -> None:
        """Plan what to feed.

        Args:
            ports: The inputs of what takes one step after another.
            caches: Its caches.
            capacity: How many positions fit.
            prompt: How many of them a prompt may take.

        Raises:
            UnsupportedError: GP320, an input that nothing here knows how to feed.
        """
        self.capacity, self.prompt = capacity, prompt
        self.buffers: dict[str, Array] = {}
        self.caches = caches
        self._inputs = InputPlan(ports, Inventory(stateful=False, caches=caches))
        self._mask: NDArray[np.int64] | None = None
        self._logits: Array | None = None

    @property
    def batch(self) -> int:
        """How many sequences run side by side; 0 before the first forward pass."""
        return 0 if self._mask is None else int(self._mask.shape[0])

    @property
    def length(self) -> int:
        """How many positions the caches hold, padding included."""
        return 0 if self._mask is None else int(self._mask.shape[1])

    @property
    def logits(self) -> Array:
        """The logits of the last forward pass, [batch, length, vocabulary].

        Of a prompt they may be those of the last position alone.

        Raises:
            UsageError: GP243, there was no forward pass yet.
        """
        if self._logits is None:
            raise UsageError("GP243", "there are no logits before the first forward pass")
        return self._logits

    def prefill(self, ids: ArrayLike, attention_mask: ArrayLike | None = None) -> Array:
        """Forget everything, then feed a prompt.

        Args:
            ids: Token ids [batch, length], or [length] for one sequence.
            attention_mask: [batch, length], 0 where a position is padding; all ones where not given.

        Returns:
            The prompt's logits, as `logits`.

        Raises:
            UsageError: GP241 a shape does not fit; GP267 the prompt is too long. Nothing is forgotten then.
            UnsupportedError: GP322, the runtime failed.
        """
        tokens = _checked(np.atleast_2d(np.asarray(ids, np.int64)))
        check_room(tokens.shape[1], 0, self.prompt)
        mask = np.ones_like(tokens)
        if attention_mask is not None:
            mask = np.asarray(attention_mask, np.int64)
            if mask.shape != tokens.shape:
                raise UsageError("GP241", f"attention_mask must be {list(tokens.shape)}, but is {list(mask.shape)}")
        self.reset()
        self._logits = self._feed(tokens, mask)
        return self._logits

    def step(self, ids: ArrayLike) -> Array:
        """Feed the next tokens.

        Args:
            ids: Token ids [batch, length], or [batch] for one token each.

        Returns:
            Their logits, as `logits`.

        Raises:
            UsageError: GP241 a shape does not fit; GP242 the batch is not the one the caches were made for; GP267 there
                is no room left. The caches are as they were then.
            UnsupportedError: GP322, the runtime failed.
        """
        tokens = np.asarray(ids, np.int64)
        tokens = _checked(tokens[:, None] if tokens.ndim == 1 else tokens)
        if self._mask is not None and len(tokens) != self.batch:
            raise UsageError("GP242", f"the caches hold a batch of {self.batch}, not of {len(tokens)}", "reset first")
        check_room(tokens.shape[1], self.length, self.capacity)
        self._logits = self._feed(tokens, np.ones_like(tokens))
        return self._logits

    def rewind(self, length: int) -> None:
        """Keep the first ``length`` positions.

        Raises:
            UsageError: GP245, there are not so many.
            UnsupportedError: GP370, the model has states that absorbed the others.
        """
        if not 0 <= length <= self.length:
            raise UsageError("GP245", f"cannot rewind to {length}: the session holds {self.length} positions")
        states = [cache.name for cache in self.caches if cache.kind != "kv"]
        if states and length < self.length:
            raise UnsupportedError("GP370", f"cannot rewind: cache {states[0]} holds what all tokens left in it")
        if self._mask is not None:
            self._mask = self._mask[:, :length]

    def trim(self, count: int) -> None:
        """Drop the last ``count`` positions; as `rewind`."""
        self.rewind(self.length - count)

    def reset(self) -> None:
        """Forget all tokens; the next prompt may have another batch."""
        self._mask = self._logits = None
        self._forget()

    @abstractmethod
    def _run(self, step: Step) -> Array:
        """Run the model, keep its caches, and give the logits."""

    @abstractmethod
    def _forget(self) -> None:
        """Set states that are not positions to zero."""

    def _feed(self, tokens: NDArray[np.int64], new: NDArray[np.int64]) -> Array:
        past = self.length
        mask = new if self._mask is None else np.concatenate([self._mask, new], axis=1)
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, past:]
        logits = self._run(Step(tokens, mask, positions, past))
        self._mask = mask
        return logits


def check_room(count: int, held: int, room: int) -> None:
    """That ``count`` more tokens fit behind those that are ``held``.

    Raises:
        UsageError: GP267.
    """
    if held + count <= room:
        return
    if not held:
        raise UsageError(
            "GP267",
            f"a prompt of {count} tokens does not fit: there is room for {room}",
            "make the model again with more room, or shorten the prompt",
        )
    raise UsageError(
        "GP267",
        f"{count} more tokens do not fit: {held} of {room} positions are taken",
        "rewind or reset, or make the model again with more room",
    )


def cache_memory(cache: Cache, batch: int) -> Array:
    """An array of zeros that holds all of ``cache``.

    Raises:
        UnsupportedError: GP320, a dimension is not known.
    """
    shape = [batch if axis == cache.axes.batch else size for axis, size in enumerate(cache.shape or (None,))]
    known = [size for size in shape if isinstance(size, int)]
    if len(known) != len(shape):
        raise UnsupportedError("GP320", f"cannot tell how large cache {cache.name} {shape} is")
    return np.zeros(known, numpy_type(cache.element_type, f"cache {cache.name}"))


def _checked(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    if ids.ndim != 2 or not ids.size:
        raise UsageError("GP241", f"token ids must be [batch, length] and not empty, but are {list(ids.shape)}")
    return ids
