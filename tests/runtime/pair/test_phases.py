"""A prefill and a decode model over one buffer compute what the dynamic model does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.loaded import onnx_model, openvino_model
from support.models import export, reference
from support.reference_tokens import greedy_tokens

from graphpass import PassManager, load, parse
from graphpass.errors import GraphpassError
from graphpass.runtime import DecodeSession, open_session
from graphpass.runtime.pair.phases import open_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.ir.model import Model

PROMPT, CHUNK, CAPACITY = 24, 8, 32


def slow(*names: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


_OPENVINO = "change-precision,fuse-attention,expose-position-ids,window-from-positions"

#: Every shared decoder to which fixed shapes apply, in the forms that have pipelines of their own.
ONNX = ["bloom", "gpt2", "llama", *slow("falcon", "gpt2_upcast", "gptj", "llama_12l", "opt", "phi3", "qwen3")]
CONVERTED = ["mistral_sw8", *slow("bloom", "gpt_oss", "llama")]
STATELESS = ["llama", "olmo2", *slow("gemma3_text", "gpt2", "llama_12l", "qwen3", "qwen3_moe")]


def pair_of(model: Model, before: str) -> DecodeSession:
    prepared = PassManager(parse(before)).run(model).model if before else model
    prefill, decode = (
        PassManager(parse(f"make-static{{length={length},past={past}}}")).run(prepared).model
        for length, past in ((CHUNK, PROMPT), (1, CAPACITY))
    )
    return open_pair(prefill, decode)


def _follow(model: Model, pair: DecodeSession) -> None:
    dynamic = open_session(model)
    ids = np.random.default_rng(0).integers(3, 300, PROMPT)
    places = {name: buffer.ctypes.data for name, buffer in pair.store.buffers.items()}
    for length in (1, CHUNK - 1, CHUNK, CHUNK + 1, PROMPT):
        expected, found = dynamic.prefill(ids[:length]), pair.prefill(ids[:length])
        assert found.shape[1] == 1
        for _ in range(4):
            np.testing.assert_allclose(found[:, -1], expected[:, -1], atol=1e-4)
            token = expected[:, -1].argmax(-1)
            assert (found[:, -1].argmax(-1) == token).all()
            expected, found = dynamic.step(token), pair.step(token)
    assert places == {name: buffer.ctypes.data for name, buffer in pair.store.buffers.items()}
    # Each token enters a buffer, and prompts move from one layout to the other.
    assert pair.stats.bytes_copied > sum(buffer.nbytes for buffer in pair.store.buffers.values())


@pytest.mark.parametrize("name", ONNX)
def test_a_pair_in_onnx_runtime_follows_its_model(name: str) -> None:
    model = onnx_model(name)
    _follow(model, pair_of(model, ""))


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_models_of_the_onnxruntime_genai_builder(name: str) -> None:
    model = onnx_model(name, "onnx-genai")
    _follow(model, pair_of(model, "lower-operators"))


@pytest.mark.parametrize("name", CONVERTED)
def test_a_pair_converted_to_openvino_follows_its_model(name: str) -> None:
    model = onnx_model(name)
    _follow(model, pair_of(model, f"to-openvino,{_OPENVINO}"))


@pytest.mark.parametrize("name", STATELESS)
def test_a_pair_of_ir_follows_its_model(name: str) -> None:
    model = openvino_model(name, "ov-stateless")
    _follow(model, pair_of(model, _OPENVINO))


def test_a_stateful_ir_in_openvino() -> None:
    model = load(export("llama", "ov-stateful"))
    _follow(model, pair_of(model, f"make-stateless,{_OPENVINO}"))


def test_greedy_tokens_equal_pytorch() -> None:
    expected = reference("llama")
    session = pair_of(onnx_model("llama"), "")
    logits = session.prefill(expected["prompt_ids"])
    assert greedy_tokens(session, logits, len(expected["greedy_ids"])) == expected["greedy_ids"]


def test_several_tokens_a_step_rewind_and_padding() -> None:
    model = onnx_model("llama")
    session, dynamic = pair_of(model, ""), open_session(model)
    mask = [[0, 0, 1, 1, 1, 1, 1, 1, 1, 1]]
    ids = np.arange(20, 30)[None]
    np.testing.assert_allclose(session.prefill(ids, mask)[:, -1], dynamic.prefill(ids, mask)[:, -1], atol=1e-4)
    np.testing.assert_allclose(session.step([[5, 6, 7]]), dynamic.step([[5, 6, 7]]), atol=1e-4)
    session.rewind(11)
    dynamic.prefill(ids, mask)
    dynamic.step([5])
    np.testing.assert_allclose(session.step([9]), dynamic.step([9]), atol=1e-4)


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_one_token_too_many_overwrites_nothing(dialect: str) -> None:
    session = (
        pair_of(onnx_model("llama"), "")
        if dialect == "onnx"
        else pair_of(openvino_model("llama", "ov-stateless"), "fuse-attention")
    )
    session.prefill(np.arange(3, 3 + PROMPT))
    before = {name: buffer.copy() for name, buffer in session.store.buffers.items()}
    for act in (lambda: session.prefill(np.arange(PROMPT + 1)), lambda: session.step([list(range(9))])):
        with pytest.raises(GraphpassError) as caught:
            act()
        assert caught.value.id == "GP267"
        assert session.length == PROMPT
        for name, buffer in session.store.buffers.items():
            np.testing.assert_array_equal(buffer, before[name])


@pytest.mark.parametrize("name", ["llama", "lfm2"])
def test_edits_equal_a_dynamic_session(name: str) -> None:
    model = openvino_model(name, "ov-stateless")
    pair, dynamic = pair_of(model, _OPENVINO), open_session(model)
    ids = np.random.default_rng(1).integers(3, 300, CAPACITY)

    def same(act: Callable[[DecodeSession], Any]) -> None:
        found, expected = act(pair), act(dynamic)
        np.testing.assert_allclose(found[:, -1], expected[:, -1], atol=1e-4)
        assert pair.length == dynamic.length

    same(lambda session: session.prefill(ids[:20]))
    same(lambda session: session.step([ids[20:25]]))
    kept = {session: session.snapshot() for session in (pair, dynamic)}
    for trimmed in (1, 3, 9):
        for session in (pair, dynamic):
            session.trim(trimmed)
        same(lambda session, first=trimmed: session.step([ids[first : first + 3]]))
    for session in (pair, dynamic):
        session.restore(kept[session])
    same(lambda session: session.step([[7]]))
    history = np.concatenate([ids[:12], [9, 9, 9]])
    same(lambda session: session.step(session.align(history)))
    assert pair.length == 15


@pytest.mark.slow
def test_missing_rows_are_refused() -> None:
    pair = pair_of(onnx_model("llama"), "")
    with pytest.raises(GraphpassError) as caught:
        pair.prefill([[3, 4], [5, 6]])
    assert caught.value.id == "GP242"
    pair.prefill([3, 4])
    with pytest.raises(GraphpassError) as caught:
        pair.select([0, 0])
    assert caught.value.id == "GP246"


@pytest.mark.slow
def test_models_other_than_pairs_are_refused() -> None:
    def made(name: str, length: int) -> Model:
        return PassManager(parse(f"make-static{{length={length},past=16}}")).run(onnx_model(name)).model

    for prefill, decode in ((made("llama", 4), made("llama", 4)), (made("gpt2", 4), made("llama", 1))):
        with pytest.raises(GraphpassError) as caught:
            open_pair(prefill, decode)
        assert caught.value.id == "GP394"
