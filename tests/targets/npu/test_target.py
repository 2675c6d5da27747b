"""Models made for NPUs on NPUW itself, which runs on a CPU: PyTorch's tokens, and prompts that are fed in chunks."""

from __future__ import annotations

import functools
from typing import Any

import numpy
import openvino
import pytest
from support.decode import Decoder, compiled
from support.loaded import openvino_model
from support.models import export, reference
from targets.state_mutants import with_length_of_value

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel

pytestmark = pytest.mark.slow

#: In f32, but caches are kept in f16.
NPUW = {
    "NPU_USE_NPUW": "YES",
    "NPUW_DEVICES": "CPU",
    "NPUW_LLM": "YES",
    "NPUW_LLM_MAX_PROMPT_LEN": "64",
    "NPUW_LLM_MIN_RESPONSE_LEN": "64",
    "NPUW_ONLINE_PIPELINE": "NONE",
    "INFERENCE_PRECISION_HINT": "f32",
}

CHUNKS = {"NPUW_LLM_PREFILL_HINT": "DYNAMIC", "NPUW_LLM_PREFILL_CHUNK_SIZE": "16"}

#: Largest difference of logits, relative to the largest, that f16 explains.
TOLERANCE = 2e-2

#: What NPUW refuses or computes wrong as it was exported, and what each has that others do not.
MODELS = [
    ("bloom", "onnx"),  # ALiBi, no positions
    ("deepseek_v3", "ov-stateless"),  # experts of computed sizes
    ("gemma2", "onnx"),  # a window in attention that stays decomposed
    ("gpt_neo", "onnx"),  # a window kept as a constant
    ("granitemoehybrid", "ov-stateful"),  # experts that compute pieces of computed sizes
    ("lfm2", "onnx-genai"),  # names of another exporter, convolutions
    ("lfm2", "ov-stateful"),  # convolutions that absorb padding
    ("olmo2", "ov-stateless"),  # boolean masks
    ("qwen3_moe", "onnx"),  # experts of computed sizes, decomposed attention
    ("qwen3_next", "ov-stateful"),  # recurrent states that absorb padding
    ("zamba2", "ov-stateful"),  # a mask of the new tokens alone
]


@functools.cache
def converted(name: str, variant: str) -> OpenVINOModel:
    model = graphpass.load(export(name, variant))
    made = graphpass.PassManager(graphpass.get_target("npu").pipeline(model)).run(model).model
    assert isinstance(made, OpenVINOModel)
    return made


def logits(model: openvino.CompiledModel, prompt: list[int], following: list[int]) -> numpy.ndarray:
    """Of the prompt's last position, and behind each of the tokens that follow but the last."""
    decoder = Decoder(model.create_infer_request())
    fed = [prompt, *([token] for token in following[:-1])]
    return numpy.stack([decoder.step(numpy.array([ids]))[0].astype(numpy.float64) for ids in fed])


def on_npuw(model: OpenVINOModel, **options: Any) -> openvino.CompiledModel:
    return openvino.Core().compile_model(model.ov_model, "NPU", NPUW | options)


@pytest.mark.parametrize(("name", "variant"), MODELS)
def test_generates_the_reference_tokens(name, variant):
    expected = reference(name)
    found = logits(on_npuw(converted(name, variant)), expected["prompt_ids"], expected["greedy_ids"])
    for step, token in zip(found, expected["greedy_ids"], strict=True):
        assert step.max() - step[token] <= TOLERANCE * numpy.abs(step).max()
    numpy.testing.assert_allclose(
        found[0, :8], expected["logits_last_prompt_pos_first8"], atol=TOLERANCE * numpy.abs(found[0]).max()
    )


def test_the_length_of_the_past_may_be_read_from_a_value():
    """As optimum exports qwen3_5_text: NPUW transposes values, and has another number there."""
    model = with_length_of_value(openvino_model("qwen3_next"))
    made = graphpass.PassManager(graphpass.get_target("npu").pipeline(model)).run(model).model
    expected = reference("qwen3_next")
    found = logits(on_npuw(made), expected["prompt_ids"], expected["greedy_ids"])
    assert found.argmax(axis=-1).tolist() == expected["greedy_ids"]


def test_decomposed_attention_computes_no_nan_in_f16():
    """Its masks hide positions by the lowest number of f32, and rows of padding have none that is not hidden."""
    expected = reference("gemma2")
    model = converted("gemma2", "onnx")
    half = on_npuw(model, INFERENCE_PRECISION_HINT="f16")
    found, exact = (
        logits(one, expected["prompt_ids"], expected["greedy_ids"]) for one in (half, compiled(model.ov_model))
    )
    numpy.testing.assert_allclose(found, exact, atol=TOLERANCE * numpy.abs(exact).max())


@pytest.mark.parametrize(("name", "variant"), [("lfm2", "ov-stateful"), ("qwen3_next", "ov-stateful")])
def test_prompts_in_chunks_compute_the_same(name, variant):
    """The last chunk is padded on the left, between the state and the tokens that continue it."""
    model = converted(name, variant)
    prompt = [int(token) for token in numpy.random.default_rng(0).integers(3, 300, 21)]
    found, expected = (logits(one, prompt, [9, 17, 33]) for one in (on_npuw(model, **CHUNKS), compiled(model.ov_model)))
    numpy.testing.assert_allclose(found, expected, atol=TOLERANCE * numpy.abs(expected).max())


@pytest.mark.parametrize(("mask", "is_right"), [([1] * 6 + [0, 0, 1], True), ([1] * 7, False)])
def test_dropped_positions_are_hidden_by_the_mask(mask, is_right):
    """Two of eight positions are dropped. Those beyond the end of a shorter mask would still be seen."""
    model = converted("llama", "ov-stateful")
    prompt, kept, dropped, token = [5, 9, 17, 33, 21], 7, [8, 11], 12
    decoder = Decoder(on_npuw(model).create_infer_request())
    for ids in (prompt, [kept], *([one] for one in dropped)):
        decoder.step(numpy.array([ids]))
    feeds = {"input_ids": [[token]], "attention_mask": [mask], "position_ids": [[6]]}
    decoder.request.infer(
        {name: numpy.array(value) for name, value in feeds.items()} | {"beam_idx": numpy.zeros(1, numpy.int32)}
    )
    found = decoder.request.get_tensor("logits").data[0, -1]
    (*_, expected) = logits(compiled(model.ov_model), prompt, [kept, token, 0])
    assert bool(numpy.abs(found - expected).max() <= TOLERANCE * numpy.abs(expected).max()) is is_right
