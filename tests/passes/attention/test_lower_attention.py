"""The pass `lower-attention`: results of ONNX Runtime's own Attention, and what stays."""

from __future__ import annotations

import numpy
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from support.loaded import run_once
from support.models import exporters

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.io import load

QUERY, KEY = [2, 4, 3, 8], [2, 2, 5, 8]


def attention(mask: int | None, **attributes) -> OnnxModel:
    inputs = {"query": QUERY, "key": KEY, "value": KEY}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    ports += [] if mask is None else [helper.make_tensor_value_info("mask", mask, [3, 5])]
    node = helper.make_node("Attention", [port.name for port in ports], ["result"], name="attention", **attributes)
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, QUERY)
    proto = helper.make_model(
        helper.make_graph([node], "g", ports, [result]), opset_imports=[helper.make_opsetid("", 23)], ir_version=10
    )
    onnx.checker.check_model(proto)
    return OnnxModel(proto)


def result_of(model: OnnxModel, feeds):
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize("mask", [None, TensorProto.BOOL, TensorProto.FLOAT])
@pytest.mark.parametrize("attributes", [{}, {"scale": 0.3, "softcap": 2.0}])
def test_results_are_equal(mask, attributes):
    random = numpy.random.default_rng(0)
    feeds = {
        name: random.standard_normal(shape, numpy.float32)
        for name, shape in {"query": QUERY, "key": KEY, "value": KEY}.items()
    }
    if mask is not None:
        shown = numpy.tri(3, 5, 2, dtype=bool)
        feeds["mask"] = shown if mask == TensorProto.BOOL else random.standard_normal((3, 5), numpy.float32)
    model = attention(mask, **attributes)
    lowered = run_once(model, "lower-attention").model
    assert "Attention" not in {node.op for node in lowered.graph.nodes}
    numpy.testing.assert_allclose(result_of(lowered, feeds), result_of(model, feeds), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: attention(None, is_causal=1), "it masks causally by an attribute"),
        (lambda: load(exporters("mobius", "qwen3_5_text")), "it has a past, lengths or scores inside"),
    ],
)
def test_unfused_attention_has_a_reason(model, reason):
    (record,) = graphpass.PassManager(graphpass.parse("lower-attention")).run(model()).records
    assert reason in record.result.notes[0]
