"""Quantizers as OpenVINO's frontend reads them become one operator."""

from __future__ import annotations

import numpy
import onnxruntime
import openvino
import pytest
from onnx import helper, numpy_helper
from support.converted_nodes import convert, model_of


@pytest.mark.parametrize("origin", [numpy.uint8(118), numpy.int8(-7)])
def test_quantizers_become_one_operator(origin):
    scale = numpy_helper.from_array(numpy.float32(0.03), "scale")
    zero = numpy_helper.from_array(numpy.asarray(origin), "zero")
    quantize = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], "q")
    dequantize = helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], "y")
    model = model_of(quantize, dequantize, weights=[scale, zero])
    result = convert(model)
    assert [node.op for node in result.graph.nodes if node.op not in {"Constant", "Parameter", "Result"}] == [
        "FakeQuantize"
    ]
    feed = numpy.linspace(-9.0, 9.0, 4096, dtype=numpy.float32).reshape(-1, 4)
    expected = onnxruntime.InferenceSession(model.proto.SerializeToString()).run(
        ["y"], {"x": feed, "flag": numpy.array(True)}
    )[0]
    numpy.testing.assert_allclose(openvino.compile_model(result.ov_model, "CPU")({0: feed})[0], expected, atol=1e-5)
