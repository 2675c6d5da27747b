"""Numbers of operators: negative integers, constants beyond the range of f64, and malformed axes."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest
from verify.structure.comparing import is_equal, read_by_openvino

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.structure.proof import compare_structures


def of_integers(body: str) -> OnnxModel:
    """Return a model of positions ``hidden``, with constants 0 to 4."""
    constants = "".join(f"{name} = Constant <value_int = {value}> ()\n" for value, name in enumerate("abcde"))
    text = f"""<ir_version: 9, opset_import: ["": 18]>
    of_integers (int64[batch, length, 4] hidden) => (int64[batch, length, 4] logits) {{ {constants} {body} }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


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
