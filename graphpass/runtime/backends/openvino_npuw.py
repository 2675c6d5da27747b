"""Run stateful models on NPUs by NPUW, which converts them to static shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime.backends.openvino_request import OpenVINORequest, exact_core, is_there
from graphpass.runtime.sessions.cache_store import CacheStore, check_editable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.runtime.backends.device import Device
    from graphpass.runtime.sessions.compaction import CompactionPolicy
    from graphpass.runtime.sessions.inputs import Array, StepInputs
    from graphpass.runtime.sessions.slots import Slots
    from graphpass.runtime.sessions.tokens import Tokens

_AT_ONCE = "NPUW_LLM_MAX_GENERATION_TOKEN_LEN"

_DECODER = {"NPU_USE_NPUW": "YES", "NPUW_LLM": "YES"}

# By default on a CPU, NPUW splits the model into f16 parts, passes f32 tensors to them, and fails (2026.4.1).
_EXACT_ON_CPU = {"NPUW_ONLINE_PIPELINE": "NONE", "INFERENCE_PRECISION_HINT": "f32", "NPUW_F16IC": "NO"}


class OpenVINONpuwStore(CacheStore):
    """Caches inside NPUW, which stores position i in entry i.

    NPUW does not expose its caches. It overwrites entries from the first fed position on, so the last slots can be
    dropped; other edits recompute the tokens. A prompt is processed in one step; later steps have one token, or as many
    as the property ``NPUW_LLM_MAX_GENERATION_TOKEN_LEN`` states.

    Attributes:
        capacity: Number of positions that fit.
        prompt: Most tokens of a prompt in one step.
    """

    last_only = True
    moves_slots = False
    takes_any_positions = False
    sees_entries = True
    #: Dropped entries are overwritten.
    steps_per_copy = 0.0

    def __init__(self, model: Model, inventory: Inventory, device: Device) -> None:
        """Compile the model.

        Raises:
            UnsupportedError: GP321, the model has outputs besides logits, or there is no such device; otherwise as
                `graphpass.runtime.open_session`.
        """
        super().__init__(model, inventory)
        others = [name for name in self.outputs if name != self.logits_output]
        if others:
            # NPUW 2026.4.1 cannot compile a MatMul that ends in another output, or returns the output empty.
            message = f"NPUW returns logits only, not output {others[0]}"
            raise UnsupportedError("GP321", message, "remove the output")
        devices = device.properties.get("NPUW_DEVICES")
        if devices is None and not is_there(device.name):
            message, hint = (
                f"OpenVINO finds no {device.name} here",
                "to run NPUW on the CPU, set the property NPUW_DEVICES=CPU",
            )
            raise UnsupportedError("GP321", message, hint)
        on_cpu = devices == "CPU"
        is_exact = device.exact and on_cpu
        exact = _EXACT_ON_CPU if is_exact else {}
        properties = {**_DECODER, **exact, **device.properties}
        core = exact_core() if is_exact else None
        self._request = OpenVINORequest(model, replace(device, exact=False, properties=properties), core)
        self.growing_sealed = self.fixed_sealed = True
        self.inputs.batch = 1
        self.takes_mask = False
        self.prompt, response = (
            _rounded(self._request.property(f"NPUW_LLM_{name}_LEN")) for name in ("MAX_PROMPT", "MIN_RESPONSE")
        )
        # The caches include room for the new tokens of a step, one by default (llm_infer_request.cpp).
        self._at_once = int(str(device.properties.get(_AT_ONCE, 1)))
        self.capacity = self.prompt + response - self._at_once
        # Entries written since the last prompt, and whether NPUW copied the prompt's to its decode model.
        self._written, self._is_handed_over = 0, False

    def check_mask(self, mask: ArrayLike) -> None:
        if not np.all(mask):
            message = "NPUW does not support padding: it stores position i in entry i"
            raise UnsupportedError("GP376", message, "feed tokens without padding")

    def check_positions(self, tokens: Tokens, length: int) -> None:
        if (tokens.positions != np.arange(length, length + tokens.length)).any():
            message = f"NPUW requires positions in order, from {length} on, got {tokens.positions[..., 0, :].tolist()}"
            raise UnsupportedError("GP376", message, "rewind to the first of these positions")

    def check_room(self, count: int, length: int) -> None:
        if length + count > self.capacity:
            message = f"{count} more tokens do not fit: {length} of {self.capacity} positions are taken"
            hint = "rewind or reset, or open the session with a larger property NPUW_LLM_MIN_RESPONSE_LEN"
            raise UsageError("GP267", message, hint)

    def runs(self, past: int, length: int, batch: int) -> list[int]:  # noqa: ARG002
        first = min(length, self.prompt) if not past else 0
        starts = range(first, length, self._at_once)
        return [first] * (first > 0) + [min(self._at_once, length - start) for start in starts]

    def run(self, step: StepInputs) -> dict[str, Array]:
        past = step.past
        if not past and step.length <= self._at_once and self._written:
            # NPUW would process such a short prompt as a decode step after its current entries.
            self._request.renew()
            self._written = 0
        # A shorter mask leaves other columns of NPUW's mask unchanged, of which the last are read for the new tokens.
        hidden = np.zeros((1, max(self._written - past, 0) if past else 0), np.int64)
        self._written = max(self._written if past else 0, past + step.length)
        self._is_handed_over = past > 0
        mask = np.concatenate([step.attention_mask[:, :past], hidden, step.attention_mask[:, past:]], axis=1)
        results = self._request.infer(self.inputs.feeds(replace(step, attention_mask=mask)))
        # Outputs of padding precede those of tokens.
        return {
            name: results[name][:, -step.length :] if results[name].ndim > 1 else results[name] for name in self.outputs
        }

    def settings(self) -> Mapping[str, str]:
        return self._request.settings

    def forget(self) -> None:
        """Return without a change: the next prompt overwrites the entries."""

    def must_replay(self, slots: Slots, policy: CompactionPolicy) -> bool:  # noqa: ARG002
        # NPUW 2026.4.1 copies the last n entries of a prompt to its decode model, where n is the next position. After a
        # trim these are the wrong ones.
        is_cut = slots.length < self._written and not self._is_handed_over
        return is_cut or bool((slots.entries != np.arange(slots.length)).any())

    def gather(self, entries: NDArray[np.int64] | None, rows: NDArray[np.int64] | None) -> None:
        """See `CacheStore.gather`; has no effect, since entries that would move are recomputed."""

    def read(self, cache: Cache) -> Array:
        raise _sealed(cache)

    def write(self, cache: Cache, value: Array) -> None:  # noqa: ARG002 - the value cannot be used
        raise _sealed(cache)

    def check_editable(self) -> None:
        check_editable(self.inventory, written_in_place=True)


def _rounded(length: object) -> int:
    """Return a length rounded up to a multiple of 64, as in NPUW."""
    return -(-int(str(length)) // 64) * 64


def _sealed(cache: Cache) -> UnsupportedError:
    return UnsupportedError("GP370", f"cannot read or set {cache.name}: NPUW does not expose it")
