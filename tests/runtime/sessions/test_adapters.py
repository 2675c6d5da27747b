"""Adapter weights (LoRA) in a session: set from outside, kept until they are set again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import pytest
from openvino import opset13 as ops
from openvino.op import read_value
from openvino.op.util import Variable, VariableInfo
from support.loaded import openvino_model

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.errors import UnsupportedError, UsageError
from graphpass.runtime import DecodeSession, open_session

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
RANK = 4


def adapted() -> OpenVINOModel:
    """Llama with an adapter on its first query projection, as openvino.genai adds them."""
    model = openvino_model("llama").clone()
    native = model.ov_model
    name = "q_proj/aten::linear/MatMul"
    projection = next(op for op in native.get_ordered_ops() if op.get_friendly_name().endswith(name))
    outputs, inputs = projection.input_value(1).get_shape()
    x, total = projection.input_value(0), projection.output(0)
    targets = total.get_target_inputs()
    states = []
    for name, shape in (("lora_state_A", [-1, inputs]), ("lora_state_B", [outputs, -1])):
        info = VariableInfo()
        info.data_shape, info.data_type, info.variable_id = openvino.PartialShape(shape), openvino.Type.f32, name
        kept = Variable(info)
        states.append(read_value(kept))
        native.add_variables([kept])
        native.add_sinks([openvino.opset6.assign(states[-1], kept)])
    added = ops.matmul(ops.matmul(x, states[0], False, True), states[1], False, True)
    both = ops.add(total, added)
    for target in targets:
        target.replace_source_output(both.output(0))
    native.validate_nodes_and_infer_types()
    return OpenVINOModel(native)


WEIGHTS = {
    name: np.random.default_rng(place).standard_normal(shape).astype(np.float32)
    for place, (name, shape) in enumerate({"lora_state_A": (RANK, 64), "lora_state_B": (64, RANK)}.items())
}


@pytest.fixture(scope="module")
def model() -> OpenVINOModel:
    return adapted()


def with_weights(model: OpenVINOModel) -> DecodeSession:
    session = open_session(model)
    session.set_adapters(WEIGHTS)
    return session


def test_adapters_outlive_tokens(model: OpenVINOModel) -> None:
    session = with_weights(model)
    assert session.adapters == ("lora_state_A", "lora_state_B")
    first = session.prefill(PROMPT)
    assert abs(first - open_session(openvino_model("llama")).prefill(PROMPT)).max() > 0.1
    np.testing.assert_array_equal(session.prefill(PROMPT), first)
    session.rewind(0)
    np.testing.assert_array_equal(session.step([PROMPT]), first)
    session.reset()
    np.testing.assert_array_equal(session.step([PROMPT]), first)


def test_tokens_are_computed_again_with_new_weights(model: OpenVINOModel) -> None:
    session = open_session(model)
    session.prefill(PROMPT)
    kept = session.snapshot()
    session.set_adapters(WEIGHTS)
    assert session.length == len(PROMPT)
    expected = with_weights(model).prefill([*PROMPT, 7])[:, -1]
    np.testing.assert_allclose(session.step([7])[:, -1], expected, atol=1e-5)
    with pytest.raises(UsageError, match="change of adapters"):
        session.restore(kept)


def test_adapters_are_saved_with_their_caches(model: OpenVINOModel, tmp_path: Path) -> None:
    session, path = with_weights(model), tmp_path / "state.safetensors"
    session.prefill(PROMPT)
    session.save(path)
    other = open_session(model, state=path)
    for edited in (session, other):
        edited.rewind(0)
    np.testing.assert_array_equal(other.step([PROMPT]), session.step([PROMPT]))


def test_restored_and_loaded_states_keep_slot_moves(model: OpenVINOModel, tmp_path: Path) -> None:
    session, path = open_session(model), tmp_path / "state.safetensors"
    session.prefill(PROMPT)
    session.reorder([2], [3])
    session.save(path)
    kept = session.snapshot()
    session.rewind(0)
    session.restore(kept)
    for edited in (session, open_session(model, state=path)):
        with pytest.raises(UnsupportedError, match="would have other results") as caught:
            edited.set_adapters(WEIGHTS)
        assert caught.value.id == "GP370"
        edited.rewind(2)
        edited.set_adapters(WEIGHTS)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"lora": np.ones((4, 64))}, "there are lora_state_A, lora_state_B"),
        ({"lora_state_A": np.ones((4, 63))}, r"expected adapter lora_state_A \[\?, 64\], got \[4, 63\]"),
    ],
)
def test_adapter_weights_of_wrong_shape(model: OpenVINOModel, weights: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        open_session(model).set_adapters(weights)
