"""Fused activations as functions of real numbers, beside what ONNX Runtime and OpenVINO compute."""

import math

import numpy
import openvino
import pytest
from openvino import opset13

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.evaluate import value_at
from graphpass.analysis.symbolic.expressions import number
from graphpass.verify.structure.activations import gelu, swish

X = ex.read("x", (), "real")
POINTS = numpy.linspace(-4, 4, 9)


def computed(expr):
    return [value_at(expr, {X: float(point)}, None) for point in POINTS]


def of_openvino(operator):
    x = opset13.parameter([9], numpy.float32)
    compiled = openvino.Core().compile_model(openvino.Model([operator(x)], [x], "activation"), "CPU")
    return compiled([POINTS.astype(numpy.float32)])[0]


@pytest.mark.parametrize(
    ("expr", "operator"),
    [
        (gelu(X, approximate=False), lambda x: opset13.gelu(x, "erf")),
        (gelu(X, approximate=True), lambda x: opset13.gelu(x, "tanh")),
        (swish(X), opset13.swish),
        (swish(X, number(1.702)), lambda x: opset13.swish(x, opset13.constant(numpy.float32(1.702)))),
    ],
    ids=["gelu", "gelu by tanh", "swish", "quick gelu"],
)
def test_activations_are_those_of_openvino(expr, operator):
    numpy.testing.assert_allclose(computed(expr), of_openvino(operator), atol=2e-6)


def test_both_forms_of_gelu_differ_by_less_than_a_thousandth():
    exact, approximate = (numpy.array(computed(gelu(X, approximate))) for approximate in (False, True))
    assert 1e-5 < numpy.abs(exact - approximate).max() < 1e-3
    assert math.isclose(exact[6], 2 * 0.5 * (1 + math.erf(math.sqrt(2))))
