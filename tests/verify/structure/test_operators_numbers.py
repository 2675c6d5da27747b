"""Numbers of operators: negative integers, constants beyond the range of f64, and malformed axes."""

from __future__ import annotations

import io
from typing import Any

import onnx
import onnx.parser
import openvino
import pytest

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.verify.structure.comparer import Comparer
from graphpass.verify.structure.proof import compare_structures
from graphpass.verify.structure.weights import WeightDigests


def is_equal(reference: Any, candidate: Any) -> bool:
    models = reference, candidate
    return not Comparer(models, WeightDigests(models), ["logits"], unpadded=False).unequal()


def read_by_openvino(model: OnnxModel) -> OpenVINOModel:
    native = openvino.Core().read_model(io.BytesIO(model.proto.SerializeToString()))
    native.outputs[0].set_names({"logits"})
    return OpenVINOModel(native)


def of_integers(body: str) -> OnnxModel:
    """Return a model of positions ``hidden``, with constants 0 to 4."""
    constants = "".join(f"{name} = Constant <value_int = {value}> ()\n" for value, name in enumerate("abcde"))
    text = f"""<ir_version: 9, opset_import: ["": 18]>
    of_integers (int64[batch, length, 4] hidden) => (int64[batch, length, 4] logits) {{ {constants} {body} }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def test_sums_of_integers_may_be_negative():
    sums, bounded = (
        of_integers(f"less = Sub (hidden, d) sums = CumSum (less, b) logits = {result}")
        for result in ("Identity (sums)", "Max (sums, a)")
    )
    assert not is_equal(sums, bounded)
    assert is_equal(sums, sums.clone())


def test_quotients_of_negative_integers_depend_on_the_device():
    """OpenVINO's CPU plugin truncates them, also where its specification rounds down."""
    bodies = "logits = Div (hidden, c)", "less = Sub (hidden, e) half = Div (less, c) logits = Add (half, c)"
    quotient, moved = (read_by_openvino(of_integers(body)) for body in bodies)
    assert not is_equal(quotient, moved)
    assert is_equal(moved, moved.clone())


@pytest.mark.parametrize("operation", ["Add (c, c)", "Mul (c, c)", "Pow (c, c)", "Exp (c)"])
def test_numbers_beyond_the_range_of_f64_are_not_proven(operation):
    text = f"""<ir_version: 9, opset_import: ["": 18]>
    beyond (double[batch, 4] hidden) => (double[batch, 4] logits) <double c = {{1e308}}> {{
        more = {operation} next = Add (hidden, more) logits = Add (next, c)
    }}"""
    model = OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    proof = compare_structures(model, model.clone())
    assert proof is not None


def test_an_axis_of_a_scalar_is_not_proven():
    model = of_integers("sums = CumSum (e, a) logits = Add (hidden, sums)")
    assert not is_equal(model, model.clone())
