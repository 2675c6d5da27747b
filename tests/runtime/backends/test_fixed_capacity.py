"""Sessions whose caches are one buffer that never moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from edits.machine import LONGEST, run_edits
from edits.subjects import subject
from support.loaded import onnx_model

from graphpass import PassManager, parse
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import GraphpassError
from graphpass.runtime import DecodeSession, open_session
from graphpass.runtime.backends.onnxruntime_in_place import OnnxRuntimeInPlaceStore
from graphpass.verify.compare_models import compare

if TYPE_CHECKING:
    from collections.abc import Callable

CAPACITY = 24


def fixed(name: str, variant: str = "onnx", capacity: int = CAPACITY) -> OnnxModel:
    model = PassManager(parse(f"static-cache{{capacity={capacity}}}")).run(onnx_model(name, variant)).model
    assert isinstance(model, OnnxModel)
    return model


def in_place(name: str, variant: str = "onnx", capacity: int = CAPACITY) -> DecodeSession:
    session = open_session(fixed(name, variant, capacity))
    assert isinstance(session.store, OnnxRuntimeInPlaceStore)
    return session


@pytest.mark.parametrize(
    ("name", "variant"),
    [("llama", "onnx"), ("bloom", "onnx"), ("gemma3_text", "onnx"), ("llama", "onnx-genai"), ("lfm2", "onnx-genai")],
)
def test_tokens_equal_growing_caches_and_buffers_stay(name: str, variant: str) -> None:
    growing, static = open_session(onnx_model(name, variant)), in_place(name, variant)
    grows = {cache.read for cache in analyze_caches(fixed(name, variant)).of_kind("kv")}
    places: set[tuple[tuple[str, int], ...]] = set()
    ids = np.random.default_rng(0).integers(3, 300, CAPACITY)
    for length in (1, 7, 8, 9, CAPACITY):
        expected, found = growing.prefill(ids[:length]), static.prefill(ids[:length])
        for _ in range(min(4, CAPACITY - length)):
            np.testing.assert_allclose(found[:, -1], expected[:, -1], atol=1e-4)
            token = expected[:, -1].argmax(-1)
            expected, found = growing.step(token), static.step(token)
        np.testing.assert_allclose(found[:, -1], expected[:, -1], atol=1e-4)
        places.add(tuple((read, static.store.buffers[read].ctypes.data) for read in sorted(grows)))
    assert len(places) == 1


@pytest.mark.parametrize("variant", ["onnx", "onnx-genai"])
def test_one_token_too_many_overwrites_nothing(variant: str) -> None:
    session = in_place("llama", variant)
    session.prefill(np.arange(3, CAPACITY))
    acts: list[Callable[[], object]] = [
        lambda: session.step([[1, 2, 3, 4]]),
        lambda: session.prefill(np.arange(CAPACITY + 1)),
    ]
    for act in acts:
        before = {name: buffer.copy() for name, buffer in session.store.buffers.items()}
        with pytest.raises(GraphpassError, match="fit") as caught:
            act()
        assert caught.value.id == "GP267"
        assert session.length == CAPACITY - 3
        for name, buffer in session.store.buffers.items():
            np.testing.assert_array_equal(buffer, before[name])
    session.step([[1, 2, 3]])
    with pytest.raises(GraphpassError, match="24 of 24 positions are taken"):
        session.step([1])


def test_rewound_positions_are_overwritten() -> None:
    session, fresh = in_place("llama"), in_place("llama")
    session.prefill([5, 6, 7, 8, 9])
    session.rewind(3)
    session.trim(1)
    assert session.length == 2
    fresh.prefill([5, 6])
    np.testing.assert_allclose(session.step([[40, 41]]), fresh.step([[40, 41]]), atol=1e-5)
    assert session.stats.bytes_copied == 0
    with pytest.raises(GraphpassError, match="cannot rewind to 9"):
        session.rewind(9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "variant", "passes"),
    [("llama", "onnx", ""), ("gpt2", "onnx", "add-tree-mask,"), ("lfm2", "onnx-genai", "")],
)
def test_random_edits_equal_recomputation(name: str, variant: str, passes: str) -> None:
    tested = subject(name, variant, f"{passes}static-cache{{capacity={LONGEST + 8}}}")
    assert isinstance(tested.session.store, OnnxRuntimeInPlaceStore)
    run_edits(tested, 8)


def test_masked_positions_are_not_nan() -> None:
    """Slots behind the positions are weighed with 0, which leaves nothing of a number but NaN of NaN."""
    session, fresh = in_place("llama"), in_place("llama")
    session.prefill([5, 6, 7, 8])
    for buffer in session.store.buffers.values():
        buffer[:, :, 2:4] = np.nan
    session.rewind(2)
    fresh.prefill([5, 6])
    np.testing.assert_array_equal(session.step([9]), fresh.step([9]))


@pytest.mark.slow
def test_edits_are_verified() -> None:
    model = fixed("llama", capacity=64)
    assert compare(onnx_model("llama"), model, edits=True).divergence is None
    assert compare(model, onnx_model("llama")).divergence is None


def test_another_batch_after_a_reset() -> None:
    growing, static = open_session(onnx_model("llama")), in_place("llama")
    static.prefill([5, 6, 7])
    with pytest.raises(GraphpassError, match="batch of 1, got 2"):
        static.step([1, 2])
    ids, mask = np.array([[0, 5, 6], [7, 8, 9]]), np.array([[0, 1, 1], [1, 1, 1]])
    np.testing.assert_allclose(static.prefill(ids, mask)[:, -1], growing.prefill(ids, mask)[:, -1], atol=1e-4)
    np.testing.assert_allclose(static.step([3, 4]), growing.step([3, 4]), atol=1e-4)
    assert static.batch == 2


def test_wrong_use_is_refused() -> None:
    session = in_place("llama")
    with pytest.raises(GraphpassError) as caught:
        _ = session.logits
    assert caught.value.id == "GP243"
    for act in (
        lambda: session.prefill([]),
        lambda: session.prefill([1, 2], attention_mask=[[1]]),
        lambda: session.step(np.zeros((1, 0))),
    ):
        with pytest.raises(GraphpassError) as caught:
            act()
        assert caught.value.id == "GP241"


def test_models_unable_to_run_in_place() -> None:
    """A past that something else reads when it has been overwritten, and caches that grow."""
    read_twice = fixed("llama")
    read_twice.proto.graph.node.append(
        onnx.helper.make_node("ReduceSum", ["past_key_values.0.key"], ["sum"], keepdims=0)
    )
    read_twice.proto.graph.output.append(onnx.helper.make_tensor_value_info("sum", onnx.TensorProto.FLOAT, []))
    read_twice.mark_edited()
    for model in (read_twice, onnx_model("llama")):
        assert not isinstance(open_session(model).store, OnnxRuntimeInPlaceStore)
