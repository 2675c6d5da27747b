"""A decode loop over raw OpenVINO requests, independent of `graphpass.runtime`: what the tests trust."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import openvino

#: Compile options under which a right rewrite gives the reference tokens; the defaults (bf16, u8 caches) do not.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}

#: Length of mamba's convolution: what optimum's runtime feeds as `cache_position` of a prefill, whatever the prompt.
_MAMBA_WINDOW = 4


@functools.lru_cache(48)
def compiled(model: openvino.Model) -> openvino.CompiledModel:
    """``model`` on the CPU plugin, in f32; it must not be edited afterwards.

    OpenVINO's own cache of compiled models is not a way to share them: what version 2026.4.1 reads back of a model with
    attention sinks (gpt_oss) computes something else.
    """
    return openvino.Core().compile_model(model, "CPU", EXACT)


def fused_attention(model: openvino.CompiledModel) -> int:
    """How many attention kernels the runtime graph has; those that the plugin does not fuse are MatMul and Softmax."""
    kinds = [op.get_rt_info()["layerType"].value for op in model.get_runtime_model().get_ops()]
    return sum(kind.startswith("ScaledDotProductAttention") for kind in kinds)


def executed(model: openvino.CompiledModel) -> Counter[str]:
    """How many nodes of each kind run at each step; what is made of constants alone runs once, or not at all."""
    constant: set[str] = set()
    kinds: Counter[str] = Counter()
    for op in model.get_runtime_model().get_ordered_ops():
        kind = op.get_rt_info()["layerType"].value
        sources = {source.get_node().get_name() for source in op.input_values()}
        if kind == "Const" or (sources and sources <= constant and not kind.startswith("Memory")):
            constant.add(op.get_name())
        else:
            kinds[kind] += 1
    return kinds


def greedy(
    request: openvino.InferRequest, prompts: Sequence[Sequence[int]], count: int, **names: Any
) -> list[list[int]]:
    """Reset, prefill with ``prompts`` (padded on the left to one length), then ``count`` tokens, one a step."""
    decoder = Decoder(request, **names)
    length = max(map(len, prompts))
    ids = numpy.array([[0] * (length - len(prompt)) + list(prompt) for prompt in prompts])
    real = numpy.array([[0] * (length - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    chosen = [decoder.step(ids, real).argmax(-1)]
    while len(chosen) < count:
        chosen.append(decoder.step(chosen[-1][:, None]).argmax(-1))
    return [[int(token) for token in row] for row in numpy.stack(chosen, 1)]


class Decoder:
    """Feeds steps to a request, stateful or stateless.

    Attributes:
        mask: Which of the positions so far are real, ``[batch, length]``; cut it to rewind a model that trims by it.
        logits: Of all positions of the last step, ``[batch, length, vocabulary]``.
    """

    def __init__(
        self, request: openvino.InferRequest, presents: Mapping[str, str] | None = None, batch_axis: int = 0
    ) -> None:
        """Create a decoder.

        Args:
            request: A request of the compiled model.
            presents: Which output belongs to which past, where names do not say so.
            batch_axis: Where the pasts have their batch axis.
        """
        self.request = request
        self.batch_axis = batch_axis
        self.inputs = {name: port for port in request.model_inputs for name in port.get_names()}
        self.presents = dict(presents) if presents is not None else _presents(request)
        self.pasts: dict[str, numpy.ndarray] = {}
        self.mask = numpy.zeros((0, 0), numpy.int64)
        self.logits = numpy.zeros((0, 0, 0))
        if not self.presents:
            request.reset_state()

    def step(
        self, ids: numpy.ndarray, real: numpy.ndarray | None = None, beams: Sequence[int] | None = None, **extra: Any
    ) -> numpy.ndarray:
        """Feed tokens ``[batch, length]``; returns the last position's logits, ``[batch, vocabulary]``.

        Args:
            ids: The tokens.
            real: Which of them count; all where omitted.
            beams: Which old sequence each sequence goes on from.
            extra: Further inputs by name, ``src_idx`` and ``dst_idx`` for example.
        """
        batch = ids.shape[0]
        order = list(range(batch)) if beams is None else list(beams)
        old = self.mask[order] if len(self.mask) else numpy.zeros((batch, 0), numpy.int64)
        self.mask = numpy.concatenate([old, numpy.ones_like(ids) if real is None else real], 1)
        feeds = self._feeds(ids, order) | extra
        results = self.request.infer({name: feeds[name] for name in self.inputs if name in feeds}, share_outputs=False)
        for past, present in self.presents.items():
            self.pasts[past] = results[present].copy()
        self.logits = results["logits"].copy()
        return self.logits[:, -1]

    def _feeds(self, ids: numpy.ndarray, order: list[int]) -> dict[str, Any]:
        batch, length = ids.shape
        start = self.mask.shape[1] - length
        positions = numpy.maximum(numpy.cumsum(self.mask, 1) - 1, 0)[:, -length:]
        only_linear = "cache_position" in self.inputs
        feeds: dict[str, Any] = {
            "input_ids": ids.astype(numpy.int64),
            "attention_mask": self.mask[:, -length:] if only_linear else self.mask,
            "position_ids": positions.astype(numpy.int64),
            "cache_position": numpy.arange(_MAMBA_WINDOW) if start == 0 else numpy.array([start]),
            "beam_idx": numpy.array(order, numpy.int32),
        }
        for name, port in self.inputs.items():
            if name in self.presents:
                feeds[name] = self._past(name, port, order)
            elif name == "past_len":
                feeds[name] = numpy.array([start])
            elif name == "steps_back":
                feeds[name] = numpy.zeros(1, numpy.int32)
            elif name == "tree_mask":
                feeds[name] = _empty(port, 1, 0)
            elif name == "src_idx" or name.startswith("dst_idx"):
                feeds[name] = _empty(port, batch, self.batch_axis)
        return feeds

    def _past(self, name: str, port: Any, order: list[int]) -> numpy.ndarray:
        if name in self.pasts:
            return self.pasts[name].take(order, self.batch_axis)
        return _empty(port, len(order), self.batch_axis)


def _empty(port: Any, batch: int, batch_axis: int) -> numpy.ndarray:
    """Zeros of this batch size; other dynamic dimensions are 0."""
    sizes = [0 if dimension.is_dynamic else dimension.get_length() for dimension in port.get_partial_shape()]
    if len(sizes) > 1:
        sizes[batch_axis] = batch
    return numpy.zeros(sizes, port.get_element_type().to_dtype())


def _presents(request: openvino.InferRequest) -> dict[str, str]:
    """Which output holds which past's next value, by the names that optimum gives them."""
    outputs = {name for port in request.model_outputs for name in port.get_names()}
    guesses = {
        name: name.replace("cache_params.past", "cache_params.present").replace("past_key_values", "present")
        for port in request.model_inputs
        for name in port.get_names()
    }
    return {past: present for past, present in guesses.items() if present in outputs and past != present}
