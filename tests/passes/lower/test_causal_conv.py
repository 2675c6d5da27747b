"""Lowering causal-conv: the same numbers on ONNX Runtime, and a hybrid that reaches the CPU."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.decode import compiled, fused_attention, greedy
from support.loaded import exported
from support.models import export, reference

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.manager import PassManager
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.lower.lower_operators import LowerOperators

CHANNELS = 6


def build(
    kernel: int = 3, *, bias: bool = True, past: bool = True, domain: str = "com.microsoft", **given: Any
) -> OnnxModel:
    """Inputs columns [, past]; outputs convolved and present."""
    random = numpy.random.default_rng(1)
    state = (kernel - 1) * given.get("dilation", 1)
    last = bool(given.get("channels_last", 0))
    whole, kept = [["batch", size, CHANNELS] if last else ["batch", CHANNELS, size] for size in ("length", state)]
    names = ["columns", "weight", "bias" if bias else "", "past" if past else ""]
    while not names[-1]:
        names.pop()
    node = helper.make_node("CausalConvWithState", names, ["convolved", "present"], "conv", domain=domain, **given)
    inputs = [_info("columns", whole), *([_info("past", kept)] if past else [])]
    weights = {"weight": random.standard_normal([CHANNELS, 1, kernel]), "bias": random.standard_normal(CHANNELS)}
    held = [numpy_helper.from_array(array.astype(numpy.float32), name) for name, array in weights.items()]
    outputs = [_info("convolved", whole), _info("present", kept)]
    graph = helper.make_graph([node], "conv", inputs, outputs, held if bias else held[:1])
    opsets = [helper.make_opsetid("", 17 if domain else 27), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def _info(name: str, shape: list[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def lowered(model: Model) -> OnnxModel:
    result = PassManager([LowerOperators()]).run(model)
    assert result.records[0].result.changed
    assert isinstance(result.model, OnnxModel)
    return result.model


def run(model: OnnxModel, lengths: list[int]) -> list[numpy.ndarray]:
    """What a model gives for pieces of these lengths, one after another."""
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    shapes = {info.name: info.shape for info in session.get_inputs()}
    random, found = numpy.random.default_rng(2), []
    state = [size if isinstance(size, int) else 2 for size in shapes.get("past", [])]
    past = numpy.zeros(state, numpy.float32)
    for length in lengths:
        shape = [{"batch": 2, "length": length}.get(size, size) for size in shapes["columns"]]
        given = {"columns": random.standard_normal(shape).astype(numpy.float32), "past": past}
        convolved, past = session.run(None, {name: given[name] for name in shapes})
        found += [convolved, past]
    return found


@settings(deadline=None, max_examples=40)
@given(
    kernel=st.integers(1, 5),
    bias=st.booleans(),
    past=st.booleans(),
    activation=st.sampled_from(["none", "silu", "swish"]),
    dilation=st.integers(1, 3),
    channels_last=st.integers(0, 1),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_onnx_runtime_computes_the_same(kernel, bias, past, activation, dilation, channels_last, lengths):
    options = {"activation": activation, "dilation": dilation, "channels_last": channels_last}
    model = build(kernel, bias=bias, past=past, **options)
    for want, got in zip(run(model, lengths), run(lowered(model), lengths), strict=True):
        numpy.testing.assert_allclose(got, want, atol=1e-5)


def test_the_operator_of_onnx_is_lowered():
    """ONNX Runtime 1.31 does not take its opset yet; the operator of com.microsoft is the same."""
    own = lowered(build(domain="", activation="silu"))
    assert [node.op_type for node in own.proto.graph.node if node.op_type != "Constant"] == [
        "Concat",
        "Conv",
        "Sigmoid",
        "Mul",
        "Slice",
    ]
    own.proto.opset_import[0].version = 17
    contrib = build(activation="silu")
    for want, got in zip(run(contrib, [4, 1]), run(own, [4, 1]), strict=True):
        numpy.testing.assert_allclose(got, want, atol=1e-5)


def test_the_operator_of_onnx_follows_its_definition():
    model = build(domain="", activation="silu")
    model.proto.ir_version = 12
    random = numpy.random.default_rng(0)
    sizes = {"batch": 2, "length": 6}
    given = {
        port.name: random.standard_normal([sizes.get(size, size) for size in port.shape]).astype(numpy.float32)
        for port in model.inputs
    }
    after = lowered(model)
    after.proto.opset_import[0].version, after.proto.ir_version = 17, 9
    found = onnxruntime.InferenceSession(after.proto.SerializeToString()).run(None, given)
    for got, want in zip(found, ReferenceEvaluator(model.proto).run(None, given), strict=True):
        numpy.testing.assert_allclose(got, want, atol=1e-5)


def test_a_second_run_changes_nothing():
    result = PassManager([LowerOperators()]).run(lowered(build()))
    assert not result.records[0].result.changed


@pytest.mark.parametrize(("name", "value"), [("ndim", 2), ("state_window", 2)])
def test_unsupported_forms_are_refused(name, value):
    with pytest.raises(UnsupportedError, match=f"GP341: .* conv cannot be lowered: it has {name} = 2"):
        PassManager([LowerOperators()]).run(build(**{name: value}))


def test_openvino_still_cannot_read_the_operator():
    """When this fails, openvino's frontend has learned it: see whether the pass is still needed."""
    with pytest.raises(UnsupportedError, match="GP311"):
        PassManager([ToOpenVINO()]).run(build())


@pytest.fixture(scope="module")
def converted() -> Model:
    source = load(export("lfm2", "onnx-genai"))
    return PassManager(graphpass.get_target("cpu").pipeline(source)).run(source).model


class TestLfm2:
    def test_generates_the_reference_tokens(self, converted):
        expected = reference("lfm2")
        request = compiled(converted.ov_model).create_infer_request()
        assert greedy(request, [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]

    def test_generates_the_same_after_padding(self, converted):
        """The operator knows no padding: only the mask keeps it out of the states."""
        expected = reference("lfm2")
        request = compiled(converted.ov_model).create_infer_request()
        prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
        assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]

    def test_all_attention_is_fused(self, converted):
        theirs = compiled(exported("lfm2/ov-stateful").ov_model)
        assert fused_attention(compiled(converted.ov_model)) == fused_attention(theirs) > 0

    def test_caches_keep_their_kinds(self, converted):
        source = load(export("lfm2", "onnx-genai"))
        before, after = (graphpass.analyze_caches(one) for one in (source, converted))
        assert [(cache.kind, cache.role) for cache in after.caches] == [
            (cache.kind, cache.role) for cache in before.caches
        ]
