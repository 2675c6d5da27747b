"""Run a prefill and a decode model as one session, with one buffer per cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache, Inventory
from graphpass.ir.model import Model
from graphpass.ir.phase import Phase
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.fixed_capacity import FixedCapacityStore, cache_memory, part
from graphpass.runtime.backends.request import Request, open_request
from graphpass.runtime.pair.hand_over import Placement, hand_over
from graphpass.runtime.sessions.inputs import Array, InputPlan, StepInputs
from graphpass.runtime.sessions.session import DecodeSession


def open_pair(
    prefill: Model,
    decode: Model,
    *,
    device: str = "CPU",
    exact: bool = True,
    properties: Mapping[str, object] | None = None,
) -> DecodeSession:
    """Open a prefill and a decode model that `make-static` converted from one model.

    Args:
        prefill: The decode model again, or a model of a chunk of tokens after a past of the longest prompt.
        decode: A model of one token after a past of the capacity.
        device: The OpenVINO device, for IR; ONNX models run in ONNX Runtime, on ``"CPU"`` or ``"QNN"``, Qualcomm's HTP.
        exact: Whether to compute in f32; OpenVINO only.
        properties: OpenVINO's properties by name, for both models.

    Returns:
        A session that processes prompts with the prefill model and single tokens with the decode model.

    Raises:
        UnsupportedError: GP394, the models are not a pair; GP320, an input cannot be fed; GP321, the runtime refuses a
            model.
        UsageError: GP240, ONNX Runtime does not support the device or properties.

    Examples:
        >>> from graphpass.runtime import open_pair
        >>> from graphpass.testing import run, tiny_model
        >>> model = tiny_model("llama")
        >>> prefill = run(model, "make-static{length=8,past=16}")
        >>> decode = run(model, "make-static{length=1,past=32}")
        >>> session = open_pair(prefill, decode)
        >>> session.prefill([1, 5, 9]).shape
        (1, 1, 64)
    """
    return DecodeSession(PhasePairStore(prefill, decode, Device(device, exact, properties or {})))


@dataclass(frozen=True, slots=True)
class _Bound:
    """One model of a pair with its runtime and buffers.

    Attributes:
        pasts: Views of the session's buffers by the name of the past input.
        new: Buffers of new positions and states by the name of the present output.
    """

    phase: Phase
    inputs: InputPlan
    request: Request
    pasts: dict[str, Array]
    new: dict[str, Array]


class PhasePairStore(FixedCapacityStore):
    """A prefill model that processes prompts in chunks, with a decode model for single tokens.

    Both models share one buffer per cache. After a prompt, the prefill's layout ``[1, H, P, D]`` is converted in place
    to the decode's ``[1, H, N, D]``, which is the layout of edits between steps. Buffers are never reallocated.

    A last chunk that would be too short starts earlier: some positions are computed twice, and no padding is required.
    A prompt shorter than a chunk is padded on the left, and masked. In models with states, which must process each
    token once, the first chunk is padded instead, while the states are zero. If padding computes NaN (the mask is
    -inf, and a row of it excludes all keys), the decode model processes these prompts token by token.
    """

    last_only = True

    def __init__(self, prefill: Model, decode: Model, device: Device) -> None:
        """Open both models; see `open_pair`."""
        first, then = Phase.of(prefill), Phase.of(decode)
        _check_pair(first, then, alone=prefill is decode)
        inventory = Inventory(stateful=False, caches=then.caches)
        super().__init__(decode, inventory, then.past, min(first.past, then.past))
        # One buffer per cache, which each model views in its own shape.
        self._rooms: dict[str, Array] = {}
        for before, after in zip(first.caches, then.caches, strict=True):
            room = max(prod(_shape(before)), prod(_shape(after)))
            self._rooms[after.read] = np.zeros(room, cache_memory(after, 1).dtype)
        self._makes_nan = False
        self._prefill = self._made(first, prefill, device)
        self._decode = self._prefill if prefill is decode else self._made(then, decode, device)
        self.buffers = self._decode.pasts

    def _made(self, phase: Phase, model: Model, device: Device) -> _Bound:
        new = {}
        for cache in phase.caches:
            shape = list(_shape(cache))
            if cache.kind == "kv" and cache.axes.sequence is not None:
                shape[cache.axes.sequence] = phase.length
            new[str(cache.write)] = np.zeros(shape, self._rooms[cache.read].dtype)
        plan = InputPlan(model.inputs, Inventory(stateful=False, caches=phase.caches))
        pasts = {cache.read: self._view(cache) for cache in phase.caches}
        return _Bound(phase, plan, open_request(model, device), pasts, new)

    def runs(self, past: int, length: int, batch: int) -> list[int]:  # noqa: ARG002
        prompt = min(length, self.prompt) if not past else 0
        return [prompt] * (prompt > 0) + [1] * (length - prompt)

    def run(self, step: StepInputs) -> dict[str, Array]:
        self._end = step.past + step.length
        return {self.logits_output: self._prompt(step) if not step.past else self._run_once(self._decode, step, 0, 1)}

    def _prompt(self, step: StepInputs) -> Array:
        size, length = self._prefill.phase.length, step.length
        states = any(cache.kind != "kv" for cache in self.inventory.caches)
        first = length if length < size else length % size if states else 0
        if first and not self._makes_nan:
            logits = self._run_once(self._prefill, step, 0, first)
            self._makes_nan = bool(np.isnan(logits).any())
        if first and self._makes_nan:
            return self._token_by_token(step)
        for start in range(first, length, size):
            logits = self._run_once(self._prefill, step, min(start, length - size), size)
        self._hand_over(length)
        return logits

    def _token_by_token(self, step: StepInputs) -> Array:
        self._set_to_zero()
        return [self._run_once(self._decode, step, start, 1) for start in range(step.length)][-1]

    def settings(self) -> Mapping[str, str]:
        return self._decode.request.settings

    def forget(self) -> None:
        self._set_to_zero()
        self._end = 0

    def _set_to_zero(self) -> None:
        for buffer in self._rooms.values():
            buffer[...] = 0

    def _run_once(self, bound: _Bound, step: StepInputs, start: int, count: int) -> Array:
        phase = bound.phase
        past, padding = step.past + start, phase.length - count
        mask = np.zeros((1, phase.past + phase.length), np.int64)
        mask[:, :past] = step.attention_mask[:, :past]
        mask[:, phase.past + padding :] = step.attention_mask[:, past : past + count]
        ids, positions = (
            _padded(values, start, count, padding, axis=-1) for values in (step.input_ids, step.position_ids)
        )
        embedded = None if step.embeddings is None else _padded(step.embeddings, start, count, padding, axis=1)
        feeds = bound.inputs.feeds(StepInputs(ids, mask, positions, phase.past, embeddings=embedded))
        outputs = bound.request.infer(feeds | bound.pasts, bound.new)
        for cache in phase.caches:
            content, new = bound.pasts[cache.read], bound.new[str(cache.write)]
            if cache.kind == "kv":
                content, new = part(content, cache, past, past + count), part(new, cache, padding, phase.length)
            content[...] = new
            self.bytes_copied += new.nbytes
        return outputs[self.logits_output]

    def _view(self, cache: Cache) -> Array:
        shape = _shape(cache)
        return self._rooms[cache.read][: prod(shape)].reshape(shape)

    def _hand_over(self, length: int) -> None:
        for before, after in zip(self._prefill.phase.caches, self._decode.phase.caches, strict=True):
            if after.kind == "kv":
                source, target = _shape(before), _shape(after)
                extent = tuple(length if axis == after.axes.sequence else size for axis, size in enumerate(target))
                self.bytes_copied += hand_over(
                    self._rooms[after.read], Placement(source), Placement(target), extent, after.element_type
                )


def _padded(values: Array, start: int, count: int, padding: int, *, axis: int) -> Array:
    """Return ``count`` entries along ``axis``, after ``padding`` of zeros."""
    taken = values.take(range(start, start + count), axis=axis)
    widths = [(0, 0)] * taken.ndim
    widths[axis] = (padding, 0)
    return np.pad(taken, widths)


def _shape(cache: Cache) -> tuple[int, ...]:
    return tuple(size for size in cache.shape or () if isinstance(size, int))


def _check_pair(prefill: Phase, decode: Phase, *, alone: bool) -> None:
    hint = "convert both from one model with graphpass split"
    if alone:
        hint = "run it with its decode model (graphpass.runtime.open_pair); graphpass split makes and verifies both"
    if decode.length != 1:
        raise UnsupportedError("GP394", f"expected a decode model of 1 token per step, got {decode.length}", hint)
    if [_without_length(cache) for cache in prefill.caches] != [_without_length(cache) for cache in decode.caches]:
        raise UnsupportedError("GP394", "the two models are not a pair: their caches differ", hint)


def _without_length(cache: Cache) -> Cache:
    sizes = (None if axis == cache.axes.sequence else size for axis, size in enumerate(cache.shape or ()))
    return replace(cache, shape=tuple(sizes))
