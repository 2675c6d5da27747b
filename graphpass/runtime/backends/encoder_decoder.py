"""Run an encoder and its decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.precision import without_bf16
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Cache
from graphpass.ir.inputs import BRANCH, ENCODER_STATES
from graphpass.ir.model import Model
from graphpass.ir.types import Port, shape_text
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.runtime.sessions.inputs import TOKENS, Array, numpy_type


@dataclass(frozen=True)
class EncoderDecoderModels:
    """Parts of one model; `graphpass.runtime.encoder_decoder.EncoderDecoder` has their files.

    Caches of cross attention are computed by the encoder, by the first decoder, or inside the decoder.

    Attributes:
        encoder: Computes the encoder's hidden states.
        decoder: Computes a step from its past, and from the hidden states or caches of cross attention.
        first: Computes the first step and the caches of cross attention; ``None`` if ``decoder`` computes the first
            step without returning them, or if the encoder returns them.
    """

    encoder: Model
    decoder: Model
    first: Model | None


class EncoderDecoderSession:
    """A session of an encoder and its decoder, on CPUs in f32."""

    def __init__(self, models: EncoderDecoderModels) -> None:
        """Open the parts.

        Raises:
            UnsupportedError: GP320, an input cannot be fed; GP321, a runtime refuses a part.
        """
        models = EncoderDecoderModels(
            models.encoder.analysis(without_bf16),
            models.decoder.analysis(without_bf16),
            None if models.first is None else models.first.analysis(without_bf16),
        )
        self.models = models
        self._encoder, self._decoder = (open_request(part, Device()) for part in (models.encoder, models.decoder))
        self._first = self._decoder if models.first is models.decoder else None
        if models.first is not None and self._first is None:
            self._first = open_request(models.first, Device())
        inventory = analyze_caches(models.decoder)
        self._caches = () if inventory.stateful else inventory.caches
        self._hidden: Array = np.zeros(0)
        self._mask: Array | None = None
        self._past: dict[str, Array] = {}
        self._length = 0

    def start(self, feeds: Mapping[str, Array]) -> Array:
        """Reset the session, and run the encoder.

        Args:
            feeds: The encoder's inputs by name.

        Returns:
            The encoder's hidden states [batch, positions, hidden].

        Raises:
            UnsupportedError: GP322, the runtime failed.
        """
        ports = (port for port in self.models.encoder.inputs if port.name in feeds)
        kinds = {port.name: numpy_type(port.element_type, f"input {port.name}") for port in ports}
        results = self._encoder.infer({name: feeds[name].astype(kind, copy=False) for name, kind in kinds.items()})
        self._hidden = next(iter(results.values())).copy()
        self._mask = feeds.get("attention_mask")
        self._length = 0
        self._past = {
            cache.read: results[cache.filled_by].copy()
            for cache in self._caches
            if cache.kind == "cross" and cache.filled_by in results
        }
        if not self._caches:
            from graphpass.runtime.backends.openvino_request import OpenVINORequest

            assert isinstance(self._decoder, OpenVINORequest)
            self._decoder.reset_state()
        return self._hidden

    def step(self, ids: NDArray[np.int64]) -> Array:
        """Feed tokens of the decoder.

        Args:
            ids: Token ids, int64 [batch, length].

        Returns:
            Their logits, [batch, length, vocabulary], in the model's type.

        Raises:
            UnsupportedError: GP320, an input cannot be fed; GP322, the runtime failed.
        """
        is_first = self._length == 0 and self._first is not None
        model = self.models.first if is_first else self.models.decoder
        request = self._first if is_first else self._decoder
        assert model is not None
        assert request is not None
        results = request.infer({port.name: self._feed(port, ids) for port in model.inputs})
        self._length += ids.shape[1]
        for cache in self._caches:
            present = cache.filled_by if cache.kind == "cross" else str(cache.write)
            if is_first or cache.kind != "cross":
                self._past[cache.read] = results[present].copy()
        logits: Array = results["logits"].copy()
        return logits

    def _feed(self, port: Port, ids: NDArray[np.int64]) -> Array:
        total = self._length + ids.shape[1]
        known: dict[str, Any] = {
            **dict.fromkeys(TOKENS, ids),
            ENCODER_STATES: self._hidden,
            "encoder_attention_mask": self._mask,
            **dict.fromkeys(("attention_mask", "decoder_attention_mask"), np.ones([len(ids), total])),
            "position_ids": np.broadcast_to(np.arange(self._length, total), ids.shape),
            "cache_position": np.arange(self._length, total),
            "beam_idx": np.arange(len(ids)),
            BRANCH: np.array([self._length > 0]),
            **{cache.read: _empty(cache, len(ids)) for cache in self._caches},
            **self._past,
        }
        value = known.get(port.name)
        if value is None:
            message = f"cannot determine what to feed to input {port.name} {shape_text(port.shape)} of a decoder"
            raise UnsupportedError("GP320", message)
        fed: Array = np.asarray(value).astype(numpy_type(port.element_type, f"input {port.name}"), copy=False)
        return fed


def _empty(cache: Cache, batch: int) -> Array:
    sizes = [size if isinstance(size, int) else 0 for size in cache.shape or ()]
    if cache.axes.batch is not None:
        sizes[cache.axes.batch] = batch
    return np.zeros(sizes)
