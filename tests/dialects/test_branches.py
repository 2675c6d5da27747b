"""Ifs are replaced by one of their branches, in both dialects."""

from __future__ import annotations

import io

import numpy
import onnx.parser
import openvino
import pytest

from graphpass.dialects.onnx import branches as of_onnx
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino import branches as of_openvino
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request

#: Two Ifs whose branches have values of the same names, of which one reads a value around it twice.
TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
branching (float[N] x, bool given, bool other) => (float[N] y, float[M] fixed, float[N] z) {
  two = Constant<value_float = 2.0>()
  numbers = Constant<value_floats = [1.0, 2.0]>()
  doubled = Mul(x, two)
  first, fixed = If (given) <
    then_branch = yes () => (float[N] own, float[M] kept) { inner = Neg(doubled) own = Exp(inner) kept = Neg(numbers) },
    else_branch = no () => (float[N] own, float[M] kept) { own = Sub(doubled, x) kept = Abs(numbers) }
  >
  second = If (given) <
    then_branch = yes () => (float[N] own) { inner = Abs(x) own = Sqrt(inner) },
    else_branch = no () => (float[N] own) { own = Neg(x) }
  >
  y = Add(first, second)
  z = If (other) <
    then_branch = yes () => (float[N] own) { own = Neg(x) },
    else_branch = no () => (float[N] own) { own = Identity(x) }
  >
}
"""
X = numpy.array([1, -2, 0.5], numpy.float32)


@pytest.fixture
def model():
    return OnnxModel(onnx.parser.parse_model(TEXT))


def expected(given: bool) -> numpy.ndarray:
    return numpy.exp(-2 * X) + numpy.sqrt(numpy.abs(X)) if given else X - X


@pytest.mark.parametrize("given", [True, False])
def test_branches_of_an_input_are_taken_in_onnx(model, given):
    assert of_onnx.deciders(model) == ["given", "other"]
    assert of_onnx.take_branches(model, "given", given) == (2, 1)
    model.validate()
    assert [port.name for port in model.inputs] == ["x", "other"]
    assert [port.name for port in model.outputs] == ["y", "z"]
    assert len(list(model.graph.of_op("If"))) == 1
    results = open_request(model, Device()).infer({"x": X, "other": numpy.array(True)})
    numpy.testing.assert_allclose(results["y"], expected(given), atol=1e-6)
    numpy.testing.assert_allclose(results["z"], -X)


def test_an_input_that_decides_nothing_is_kept(model):
    before = model.digest()
    assert of_onnx.take_branches(model, "x", True) == (0, 0)
    assert model.digest() == before


@pytest.mark.parametrize("given", [True, False])
def test_branches_are_inlined_in_openvino(model, given):
    native = openvino.Core().read_model(io.BytesIO(model.proto.SerializeToString()))
    model = OpenVINOModel(native)
    rewriter = model.rewriter()
    decided = [node for node in rewriter.graph.of_op("If") if rewriter.graph.producer(node.source()).name == "given"]
    assert len(decided) == 2
    of_openvino.inline_branches(rewriter, [(node, given) for node in decided])
    rewriter.finish()
    assert len(list(model.graph.of_op("If"))) == 1
    feeds = {"x": X, "given": numpy.array(not given), "other": numpy.array(False)}
    names = {port.name for port in model.inputs}
    results = open_request(model, Device()).infer({name: array for name, array in feeds.items() if name in names})
    numpy.testing.assert_allclose(results["y"], expected(given), atol=1e-5)
    numpy.testing.assert_allclose(results["fixed"], [-1, -2] if given else [1, 2])
