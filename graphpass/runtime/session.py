"""`DecodeSession`: tokens in, logits out, caches kept in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime.inputs import Array, InputPlan, Step

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from graphpass.caches import Inventory
    from graphpass.model import Model

__all__ = ["DecodeSession"]


class DecodeSession(ABC):
    """One model in one runtime, with the caches of the tokens it has seen.

    A call that raises `UnsupportedError` may leave the caches half-way; `reset` makes the session usable again.

    Attributes:
        outputs: Names of the outputs that are not caches.
        fixed_batch: The batch that the model fixes; ``None`` where any will do.
        takes_mask: Whether the model has an ``attention_mask`` input, so that padding can be hidden from it.
    """

    def __init__(self, model: Model, inventory: Inventory) -> None:
        """Plan what to feed; subclasses then make the runtime ready.

        Args:
            model: What to run.
            inventory: Its caches.

        Raises:
            UnsupportedError: GP320, an input that nothing here knows how to feed.
        """
        self._inputs = InputPlan(model.inputs, inventory)
        presents = set() if inventory.stateful else {cache.write for cache in inventory.caches}
        self.outputs = tuple(port.name for port in model.outputs if port.name not in presents)
        self.fixed_batch = self._inputs.batch
        self.takes_mask = self._inputs.takes_mask
        self._mask: NDArray[np.int64] | None = None
        self._last: dict[str, Array] = {}

    @property
    def batch(self) -> int:
        """How many sequences run side by side; 0 before the first forward pass."""
        return 0 if self._mask is None else int(self._mask.shape[0])

    @property
    def length(self) -> int:
        """How many positions the caches hold, padding included."""
        return 0 if self._mask is None else int(self._mask.shape[1])

    @property
    def logits_output(self) -> str:
        """Name of the output that holds the logits: ``logits``, or the only one there is.

        Raises:
            UnsupportedError: GP324, none of several outputs is called ``logits``.
        """
        name = self.outputs[0] if len(self.outputs) == 1 else "logits"
        if name not in self.outputs:
            raise UnsupportedError("GP324", f"no output is called logits: {', '.join(self.outputs) or 'there is none'}")
        return name

    @property
    def logits(self) -> Array:
        """The logits of the last forward pass, [batch, length, vocabulary].

        The second dimension is 1 where the model computes only the last position's.

        Raises:
            UsageError: GP243, there was no forward pass yet.
            UnsupportedError: GP324, none of several outputs is called ``logits``, or it has other axes.
        """
        if not self._last:
            raise UsageError("GP243", "there are no logits before the first forward pass")
        name = self.logits_output
        logits = self._last[name]
        if logits.ndim != 3:
            raise UnsupportedError("GP324", f"output {name} is {list(logits.shape)}, not [batch, length, vocabulary]")
        return logits

    def prefill(self, ids: ArrayLike, attention_mask: ArrayLike | None = None) -> Array:
        """Forget everything, then feed a prompt.

        Args:
            ids: Token ids [batch, length], or [length] for one sequence.
            attention_mask: [batch, length], 0 where a position is padding; all ones where not given.

        Returns:
            The prompt's logits, as `logits`.

        Raises:
            UsageError: As `forward`.
            UnsupportedError: As `forward`.
        """
        self.reset()
        self.forward(np.atleast_2d(np.asarray(ids)), attention_mask)
        return self.logits

    def step(self, ids: ArrayLike) -> Array:
        """Feed the next tokens.

        Args:
            ids: Token ids [batch, length], or [batch] for one token each.

        Returns:
            Their logits, as `logits`.

        Raises:
            UsageError: As `forward`.
            UnsupportedError: As `forward`.
        """
        tokens = np.asarray(ids)
        self.forward(tokens[:, None] if tokens.ndim == 1 else tokens)
        return self.logits

    def forward(
        self, input_ids: ArrayLike, attention_mask: ArrayLike | None = None, position_ids: ArrayLike | None = None
    ) -> dict[str, Array]:
        """Run the model on new tokens.

        A model that fixes how many tokens it takes is run several times, and the outputs are joined along axis 1.

        Args:
            input_ids: int64 [batch, length], the new tokens.
            attention_mask: int64 [batch, past + length], 0 where a position is to be ignored. Where not given: what it
                was, and ones for the new tokens.
            position_ids: int64 [batch, length]. Where not given: how many positions that count stand before each.

        Returns:
            All outputs that are not caches, by name.

        Raises:
            UsageError: GP241 a shape does not fit; GP242 the batch is not the one the caches were made for.
            UnsupportedError: GP322 the runtime failed; GP323 the model takes another number of tokens.
        """
        step = self._step(input_ids, attention_mask, position_ids)
        size = self._inputs.tokens_at_once(step.past, step.length)
        if step.length % size:
            raise UnsupportedError("GP323", f"the model takes {size} tokens at a time, which {step.length} are not")
        results = [self._run(_part(step, start, size)) for start in range(0, step.length, size)]
        self._mask = step.attention_mask
        self._last = results[0] if len(results) == 1 else _joined(results)
        return self._last

    def reset(self) -> None:
        """Forget all tokens; the next forward pass may have another batch."""
        self._mask = None
        self._last = {}
        self._forget()

    @abstractmethod
    def _run(self, step: Step) -> dict[str, Array]:
        """Run the model once, keep its caches, and return the outputs that are none."""

    @abstractmethod
    def _forget(self) -> None:
        """Empty the caches."""

    def _step(self, input_ids: ArrayLike, attention_mask: ArrayLike | None, position_ids: ArrayLike | None) -> Step:
        ids = np.asarray(input_ids, np.int64)
        if ids.ndim != 2 or not ids.size:
            raise UsageError("GP241", f"input_ids must be [batch, length] and not empty, but is {list(ids.shape)}")
        if self._mask is not None and len(ids) != self.batch:
            raise UsageError("GP242", f"the caches hold a batch of {self.batch}, not of {len(ids)}", "reset first")
        seen = np.zeros((len(ids), 0), np.int64) if self._mask is None else self._mask
        mask = np.concatenate([seen, np.ones_like(ids)], axis=1)
        if attention_mask is not None:
            mask = _shaped("attention_mask", attention_mask, mask.shape)
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0)[:, self.length :]
        if position_ids is not None:
            positions = _shaped("position_ids", position_ids, ids.shape)
        return Step(ids, mask, positions, self.length)


def _shaped(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    array = np.asarray(values, np.int64)
    if array.shape != shape:
        raise UsageError("GP241", f"{name} must be {list(shape)}, but is {list(array.shape)}")
    return array


def _part(step: Step, start: int, size: int) -> Step:
    new = slice(start, start + size)
    past = step.past + start
    return Step(step.input_ids[:, new], step.attention_mask[:, : past + size], step.position_ids[:, new], past)


def _joined(results: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([result[name] for result in results], axis=1) for name in results[0]}
