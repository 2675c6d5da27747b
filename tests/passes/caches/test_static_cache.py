"""Caches of fixed capacity: what becomes of the graph, and that every token stays what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from support.fixed_capacity import CAPACITY, fixed, follow
from support.loaded import onnx_model
from support.models import exporters, reference
from support.operators import count_operators
from support.reference_tokens import greedy_tokens

from graphpass import PassManager, load, parse
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import GraphpassError
from graphpass.runtime import open_session

if TYPE_CHECKING:
    pass

CHUNK = 8

#: Every shared decoder that keeps its past as ONNX inputs, and that ONNX Runtime runs.
MODELS = [
    *((name, "onnx") for name in ("bloom", "deepseek_v3", "falcon", "falcon_alibi", "gemma2", "gemma3_text")),
    *((name, "onnx") for name in ("gpt2", "gpt2_upcast", "gpt_neo", "gpt_oss", "gptj", "llama", "llama_12l")),
    *((name, "onnx") for name in ("mistral_sw8", "opt", "phi3", "qwen3", "qwen3_moe")),
    ("llama", "onnx-fp16"),
    *((name, "onnx-genai") for name in ("lfm2", "llama", "qwen3")),
]


#: In which caches, masks and positions differ.
QUICK = [(name, "onnx") for name in ("bloom", "deepseek_v3", "gemma3_text", "gpt_neo", "llama", "opt")]
QUICK += [("llama", "onnx-fp16"), ("lfm2", "onnx-genai"), ("qwen3", "onnx-genai")]


@pytest.mark.parametrize(
    ("name", "variant"), [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in MODELS]
)
def test_tokens_equal_growing_caches(name: str, variant: str) -> None:
    model = onnx_model(name, variant)
    growing, static = open_session(model), open_session(fixed(model))
    ids = np.random.default_rng(0).integers(3, 300, CAPACITY)
    for length in (1, CHUNK - 1, CHUNK, CHUNK + 1, CAPACITY):
        follow(growing, static, ids[:length], CAPACITY - length)


def test_greedy_tokens_equal_pytorch() -> None:
    expected = reference("llama")
    session = open_session(fixed(onnx_model("llama")))
    logits = session.prefill(expected["prompt_ids"])
    assert greedy_tokens(session, logits, len(expected["greedy_ids"])) == expected["greedy_ids"]


def test_a_padded_batch_computes_the_same() -> None:
    model = onnx_model("gemma3_text")
    ids, mask = np.array([[0, 0, 7, 9], [5, 6, 7, 8]]), np.array([[0, 0, 1, 1], [1, 1, 1, 1]])
    growing, static = open_session(model), open_session(fixed(model))
    np.testing.assert_allclose(static.prefill(ids, mask)[:, -1], growing.prefill(ids, mask)[:, -1], atol=1e-4)
    for token in ([3, 4], [9, 2], [11, 12]):
        np.testing.assert_allclose(static.step(token), growing.step(token), atol=1e-4)


def test_the_graph_writes_caches_in_place() -> None:
    model = onnx_model("llama")
    result = fixed(model)
    assert count_operators(result)["ScatterElements"] == 4
    assert result.inputs == tuple(
        port if not port.name.startswith("past") else type(port)(port.name, ("batch_size", 2, CAPACITY, 16), "f32")
        for port in model.inputs
    )
    before, after = analyze_caches(model), analyze_caches(result)
    assert [(cache.name, cache.kind, cache.role, cache.axes) for cache in before.caches] == [
        (cache.name, cache.kind, cache.role, cache.axes) for cache in after.caches
    ]
    assert all(cache.shape is not None and cache.shape[2] == CAPACITY for cache in after.caches)
    assert "Concat" not in {node.op_type for node in result.proto.graph.node if "past_key_values.0.key" in node.input}


def test_one_buffer_is_written_in_place() -> None:
    """The buffer stays where it is, and of what it holds only the new positions change: nothing is copied."""
    capacity = 64
    with fixed(onnx_model("llama"), capacity).on_disk() as path:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    buffers = {
        entry.name: np.full((1, 2, capacity, 16), 7, np.float32)
        for entry in session.get_inputs()
        if entry.name.startswith("past")
    }
    past = 0
    for tokens in ([5, 6, 7], [8], [9]):
        total = past + len(tokens)
        before = {name: buffer.copy() for name, buffer in buffers.items()}
        addresses = _run_bound(session, buffers, np.array([tokens]), total)
        assert addresses == {name: buffer.ctypes.data for name, buffer in buffers.items()}
        for name, buffer in buffers.items():
            changed = (buffer != before[name]).any(axis=(0, 1, 3))
            assert np.flatnonzero(changed).tolist() == list(range(past, total))
        past = total


def _run_bound(session: Any, buffers: dict[str, np.ndarray], ids: np.ndarray, total: int) -> dict[str, int]:
    """Run a step with past and present in the same buffers; gives the addresses of the presents."""
    binding = session.io_binding()
    presents = {}
    for name, buffer in buffers.items():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(buffer)
        binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)
    binding.bind_output("logits")
    binding.bind_cpu_input("input_ids", ids)
    binding.bind_cpu_input("attention_mask", np.ones((1, total), np.int64))
    binding.bind_cpu_input("position_ids", np.arange(total - ids.shape[1], total)[None])
    session.run_with_iobinding(binding)
    presents = dict(zip(buffers, binding.get_outputs(), strict=False))
    return {name: value.data_ptr() for name, value in presents.items()}


def test_a_second_run_changes_nothing() -> None:
    once = fixed(onnx_model("llama"))
    again = PassManager(parse(f"static-cache{{capacity={CAPACITY}}}")).run(once)
    assert not again.changed
    assert again.model.digest() == once.digest()


def test_a_model_without_growing_caches() -> None:
    assert not PassManager(parse("static-cache")).run(onnx_model("mamba", "onnx-raw")).changed


def test_unsuitable_models_are_refused() -> None:
    with pytest.raises(GraphpassError, match="capacity of 0") as caught:
        fixed(onnx_model("llama"), 0)
    assert caught.value.id == "GP266"
    model = onnx_model("llama")
    (concat,) = [node for node in model.proto.graph.node if "present.0.key" in node.output]
    concat.input[:] = [concat.input[1], concat.input[0]]
    model.mark_edited()
    with pytest.raises(GraphpassError, match=r"past_key_values\.0\.key .* is not appended to") as caught:
        fixed(model)
    assert caught.value.id == "GP391"


def test_lengths_computed_from_other_lengths_count_slots() -> None:
    """transformers' exporter expands keys to the past plus the new tokens, and reads no shape of the present."""
    model = load(exporters("transformers-onnx", "nemotron_h"))
    follow(open_session(model), open_session(fixed(model)), np.arange(3, 10), CAPACITY - 7)
