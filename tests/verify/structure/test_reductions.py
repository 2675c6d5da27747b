"""Reductions along axes of any size, and of integers that rise along them."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest
from verify.structure.comparing import is_equal, model_of_function, read_by_openvino

from graphpass.dialects.onnx.model import OnnxModel


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
def test_extremes_along_axes_of_unknown_size(kind):
    inputs = "float[rows, columns, width] x"
    body = "axes = Constant <value = int64[2] {{0, 1}}> ()\ny = {} <keepdims = 1> (x, axes)"
    reference = model_of_function(body.format(kind), inputs)
    assert is_equal(reference, read_by_openvino(reference))
    other = {"ReduceMax": "ReduceMin", "ReduceMin": "ReduceMax"}[kind]
    assert not is_equal(reference, model_of_function(body.format(other), inputs))
    assert not is_equal(reference, model_of_function(body.format(kind).replace("0, 1", "0, 2"), inputs))


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


def test_sums_of_integers_are_not_those_of_their_squares():
    plain, squares = (of_integers(f"logits = {kind} (hidden, c)") for kind in ("ReduceSum", "ReduceSumSquare"))
    assert not is_equal(plain, squares)
    assert not is_equal(squares, plain)
    assert is_equal(squares, squares.clone())


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("ReduceL1", "terms = Abs (x) y = ReduceSum <keepdims = 1> (terms, two)"),
        ("ReduceL2", "terms = Mul (x, x) sums = ReduceSum <keepdims = 1> (terms, two) y = Sqrt (sums)"),
        ("ReduceSumSquare", "terms = Mul (x, x) y = ReduceSum <keepdims = 1> (terms, two)"),
    ],
)
def test_norms_along_an_axis_are_sums(kind, parts):
    inputs = "float[rows, columns, width] x"
    whole = model_of_function(f"y = {kind} <keepdims = 1> (x, two)", inputs)
    apart = model_of_function(parts, inputs)
    assert is_equal(whole, apart)
    assert is_equal(apart, read_by_openvino(whole))
    assert not is_equal(whole, model_of_function("y = ReduceSum <keepdims = 1> (x, two)", inputs))


def test_magnitudes_of_known_signs():
    inputs = "float[rows, columns, width] x"
    positive, absolute, least = (
        model_of_function(f"e = Exp (x) n = Neg (e) {body}", inputs)
        for body in ("y = Identity (e)", "y = Abs (n)", "y = Min (e, n)")
    )
    assert is_equal(positive, absolute)
    assert is_equal(model_of_function("e = Exp (x) y = Neg (e)", inputs), least)
    assert not is_equal(positive, least)
    assert not is_equal(model_of_function("y = Identity (x)", inputs), model_of_function("y = Abs (x)", inputs))


def test_shares_divided_by_their_norm():
    inputs = "float[rows, columns, 4] x"
    text = "shares = Softmax (x) sizes, places = TopK (shares, two) norms = {} <keepdims = 1> (sizes, two)"
    whole, apart, other = (
        model_of_function(f"{text.format(kind)} y = Div (sizes, norms)", inputs)
        for kind in ("ReduceL1", "ReduceSum", "ReduceL2")
    )
    assert is_equal(whole, apart)
    assert not is_equal(whole, other)
