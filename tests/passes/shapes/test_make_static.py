"""Models of fixed shapes: no dimension is left open, and what cannot be exact is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from support.loaded import onnx_model, openvino_model

from graphpass import PassManager, parse
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.errors import GraphpassError
from graphpass.ir.phase import Phase

if TYPE_CHECKING:
    from graphpass.ir.model import Model

LENGTH, PAST = 8, 24


def static(model: Model, before: str = "") -> Model:
    passes = ",".join([*([before] if before else []), f"make-static{{length={LENGTH},past={PAST}}}"])
    return PassManager(parse(passes)).run(model).model


def llama(dialect: str) -> Model:
    return onnx_model("llama") if dialect == "onnx" else openvino_model("llama", "ov-stateless")


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_shapes_of_inputs_and_outputs(dialect: str) -> None:
    model = llama(dialect)
    result = static(model)
    expected = {
        "input_ids": (1, LENGTH),
        "position_ids": (1, LENGTH),
        "attention_mask": (1, PAST + LENGTH),
        **{f"past_key_values.{layer}.{role}": (1, 2, PAST, 16) for layer in (0, 1) for role in ("key", "value")},
    }
    assert {port.name: port.shape for port in result.inputs} == expected
    assert {port.name: port.shape for port in result.outputs} == {
        "logits": (1, 1, 320),
        **{f"present.{layer}.{role}": (1, 2, LENGTH, 16) for layer in (0, 1) for role in ("key", "value")},
    }
    assert [port.name for port in result.inputs] == [port.name for port in model.inputs]
    assert [port.name for port in result.outputs] == [port.name for port in model.outputs]


def test_no_dimension_is_open_and_no_shape_is_computed_in_onnx() -> None:
    result = static(onnx_model("llama"))
    assert isinstance(result, OnnxModel)
    proto = result.proto
    known = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    infos = {info.name: info for info in (*known.value_info, *known.output)}
    for node in proto.graph.node:
        assert node.op_type != "Shape"
        for name in node.output:
            shape = infos[name].type.tensor_type.shape
            assert all(dimension.HasField("dim_value") for dimension in shape.dim), name
    assert b"sequence_length" not in proto.SerializeToString()


def test_no_dimension_is_open_in_an_ir() -> None:
    result = static(openvino_model("llama", "ov-stateless"))
    assert isinstance(result, OpenVINOModel)
    for op in result.ov_model.get_ops():
        assert all(output.get_partial_shape().is_static for output in op.outputs()), op


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_the_phase_of_the_model_is_noted(dialect: str) -> None:
    phase = Phase.of(static(llama(dialect)))
    assert (phase.length, phase.past) == (LENGTH, PAST)
    assert [(cache.read, cache.kind, cache.role, cache.axes.sequence) for cache in phase.caches] == [
        (f"past_key_values.{layer}.{role}", "kv", role, 2) for layer in (0, 1) for role in ("key", "value")
    ]
    with pytest.raises(GraphpassError) as caught:
        Phase.of(llama(dialect))
    assert caught.value.id == "GP394"


def test_a_damaged_note_is_refused() -> None:
    model = static(onnx_model("llama"))
    model.write_note("phase", '{"length": 1}')
    with pytest.raises(GraphpassError, match="is invalid") as caught:
        Phase.of(model)
    assert caught.value.id == "GP394"


def test_a_second_run_changes_nothing() -> None:
    once = static(openvino_model("llama", "ov-stateless"))
    again = PassManager(parse("make-static")).run(once)
    assert not again.changed


def test_weights_are_unchanged() -> None:
    model = onnx_model("llama")
    before = {tensor.name: np.prod(tensor.dims) for tensor in model.proto.graph.initializer}
    result = static(model)
    assert isinstance(result, OnnxModel)
    large = {
        tensor.name: np.prod(tensor.dims) for tensor in result.proto.graph.initializer if np.prod(tensor.dims) > 512
    }
    assert large
    assert all(before[name] == size for name, size in large.items())


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (lambda: onnx_model("mistral_sw8"), "GP392", "counts slots"),
        (lambda: onnx_model("gpt_neo"), "GP392", "counts slots"),
        (lambda: onnx_model("llama", "onnx-genai"), "GP392", "counts slots"),
        (lambda: onnx_model("deepseek_v3"), "GP393", "NonZero"),
        (lambda: onnx_model("qwen3_moe"), "GP393", "NonZero"),
        (lambda: openvino_model("deepseek_v3", "ov-stateless"), "GP393", "NonZero"),
        (lambda: openvino_model("llama", "ov-stateful"), "GP302", "stateless"),
    ],
)
def test_unsuitable_models_are_refused(model: object, error: str, words: str) -> None:
    assert callable(model)
    with pytest.raises(GraphpassError, match=words) as caught:
        static(model())
    assert caught.value.id == error


@pytest.mark.parametrize("name", ["gpt2_upcast", "gptj"])
def test_more_positions_than_the_model_has(name: str) -> None:
    with pytest.raises(
        GraphpassError, match=r"GP266.* expected at most 128 positions, the rows of the model's tables; got 256"
    ):
        PassManager(parse("make-static{length=1,past=256}")).run(onnx_model(name))


def test_padding_in_a_state_is_refused() -> None:
    with pytest.raises(GraphpassError, match=r"padding would update cache past\.0\.conv") as caught:
        static(onnx_model("lfm2", "onnx-genai"), "lower-operators{only=[group-query-attention]}")
    assert caught.value.id == "GP392"


@pytest.mark.parametrize(
    ("options", "words"),
    [("length=0", "out of range"), ("past=0", "out of range"), ("past=99999999999999999999", "out of range")],
)
def test_impossible_sizes_are_refused(options: str, words: str) -> None:
    with pytest.raises(GraphpassError, match=words) as caught:
        PassManager(parse(f"make-static{{{options}}}")).run(onnx_model("llama"))
    assert caught.value.id == "GP266"
