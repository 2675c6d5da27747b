"""Sessions that carry the caches themselves, from present outputs to past inputs."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError
from graphpass.runtime.inputs import Array, Step, numpy_type, shape_text
from graphpass.runtime.session import DecodeSession
from graphpass.runtime.slots import Tokens, newest

if TYPE_CHECKING:
    from graphpass.caches import Cache, Inventory
    from graphpass.model import Model

__all__ = ["StatelessSession"]


class StatelessSession(DecodeSession):
    """Feeds each present output as the next step's past input.

    A model without caches gets the whole history at every step, and its outputs are cut to the new tokens.
    """

    def __init__(self, model: Model, inventory: Inventory) -> None:
        """Work out what an empty past looks like.

        Args:
            model: What to run.
            inventory: Its caches.

        Raises:
            UnsupportedError: GP320, an input or a cache that cannot be fed.
        """
        super().__init__(model, inventory)
        self._next_past = {cache.write: cache.read for cache in inventory.caches}
        self._starts = {cache.read: _Start(cache) for cache in inventory.caches}
        self._past: dict[str, Array] = {}

    @abstractmethod
    def _infer(self, feeds: dict[str, Array]) -> dict[str, Array]:
        """Run the model: all inputs by name to all outputs by name."""

    def _run(self, step: Step) -> dict[str, Array]:
        if not self._starts:
            return self._replay(step)
        past = self._past or {name: start.past(step.batch) for name, start in self._starts.items()}
        results = self._infer(self._inputs.feeds(step) | past)
        self._past = {self._next_past[name]: value for name, value in results.items() if name in self._next_past}
        return {name: results[name] for name in self.outputs}

    def _replay(self, step: Step) -> dict[str, Array]:
        assert self._slots is not None
        whole = self._slots.tokens().then(
            Tokens(step.input_ids, step.attention_mask[:, step.past :], step.position_ids)
        )
        results = self._infer(self._inputs.feeds(Step(whole.ids, whole.mask, whole.positions, 0, None, step.tree_mask)))
        return {name: newest(results[name], whole, step.length) for name in self.outputs}

    def _forget(self) -> None:
        self._past = {}

    def _read(self, cache: Cache) -> Array:
        return self._past[cache.read]

    def _write(self, cache: Cache, value: Array) -> None:
        self._past[cache.read] = value


class _Start:
    """What a cache holds before the first token."""

    def __init__(self, cache: Cache) -> None:
        if cache.write is None:
            raise UnsupportedError("GP320", f"cache {cache.name} is only read: another model has to compute it")
        self._dtype = numpy_type(cache.element_type, f"cache {cache.name}")
        self._batch_axis = cache.axes.batch
        self._shape = _empty_shape(cache)

    def past(self, batch: int) -> Array:
        shape = list(self._shape)
        if self._batch_axis is not None:
            shape[self._batch_axis] = batch
        return np.zeros(shape, self._dtype)


def _empty_shape(cache: Cache) -> tuple[int, ...]:
    """The shape before the first step: of length 0 along the sequence, unless the cache's capacity is fixed."""
    shape = tuple(
        0 if axis == cache.axes.batch or (axis == cache.axes.sequence and not isinstance(size, int)) else size
        for axis, size in enumerate(cache.shape or (None,))
    )
    known = tuple(size for size in shape if isinstance(size, int))
    if known != shape:
        raise UnsupportedError(
            "GP320",
            f"cannot tell what cache {cache.name} {shape_text(cache.shape)} of kind {cache.kind} looks like when empty"
            + "".join(f"; {fact}" for fact in cache.evidence),
        )
    return known
