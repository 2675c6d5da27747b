"""Slices of weights: which there are, and that they have the elements of the whole."""

from itertools import pairwise

import numpy
import pytest
from hypothesis import given, strategies as st

from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.testing import parse_model
from graphpass.verify.layers.slices import Cutter, bounds, columns_of, multiplied_constant

TEXT = """%x = Parameter : f32[2, 6]
%w = Constant : f32[6, 8]
%half = Convert(%w) {{to=f16}}
%computed = Add(%w, 1.0)
%flat = Reshape(%w, [48])
%y = MatMul({})
Result(%y) {{name=y}}"""


@given(st.integers(1, 300), st.integers(1, 10**10))
def test_slices_cover_the_axis_in_order(size, columns):
    ends = bounds(size, size * columns)
    assert (ends[0][0], ends[-1][1]) == (0, size)
    assert all(before[1] == after[0] for before, after in pairwise(ends))
    # Each slice has at most 128 MB in f32, unless it is one row.
    assert all((stop - start - 1) * columns * 4 < 128e6 for start, stop in ends)
    assert len(ends) == 1 or size * columns * 4 > 128e6


@pytest.mark.parametrize(("operands", "expected"), [("%x, %w", "w"), ("%x, %computed", None), ("%x, %flat", None)])
def test_products_by_matrices_have_weights_to_slice(operands, expected):
    text = TEXT.replace("[48]", "[6, 8, 1]").replace("f32[2, 6]", "f32[6, 2, 8]") if "flat" in operands else TEXT
    model = parse_model(text.format(operands))
    (product,) = model.graph.of_op("MatMul")
    found = multiplied_constant(model.graph, product)
    assert (found and found.name) == expected


def test_casts_of_weights_are_looked_through():
    text = TEXT.replace("%x = Parameter : f32", "%x = Parameter : f16").format("%x, %half")
    model = parse_model(text)
    (product,) = model.graph.of_op("MatMul")
    assert multiplied_constant(model.graph, product).name == "w"


@pytest.mark.parametrize("transposed", [False, True])
def test_columns_become_the_last_axis(transposed):
    weights = "f32[8, 6]" if transposed else "f32[6, 8]"
    model = parse_model(
        f"%x = Parameter : f32[2, 6]\n%w = Constant : {weights}\n"
        f"%y = MatMul(%x, %w) {{transpose_a=false, transpose_b={str(transposed).lower()}}}\nResult(%y) {{name=y}}",
        "openvino",
    )
    (product,) = model.graph.of_op("MatMul")
    axis = columns_of(product)
    assert multiplied_constant(model.graph, product).shape[axis] == 8


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize(("kind", "made"), [("f32", "Constant"), ("f16", "Constant"), ("i32", "Slice")])
@pytest.mark.parametrize("axis", [0, 1])
def test_slices_have_the_elements_of_the_whole(dialect, kind, made, axis):
    model = parse_model(
        f"%x = Parameter : {kind}[1, 1]\n%w = Constant : {kind}[6, 8]\n%y = Add(%x, %w)\nResult(%y) {{name=y}}", dialect
    )
    (weights,) = (node.outputs[0] for node in model.graph.of_op("Constant") if node.name == "w")
    whole = model.graph.constant(weights, 48)
    cutter = Cutter(model, "part")
    cutter.rewriter.redirect_uses(weights, cutter.cut(weights, (2, 5), axis))
    (result,) = model.graph.of_op("Result")
    cutter.rewriter.resize_port(result, [None, None])
    cutter.finish()
    (add,) = model.graph.of_op("Add")
    assert model.graph.producer(add.source(1)).op == made
    found = open_request(model, Device()).infer({"x": numpy.zeros((1, 1), whole.dtype)})["y"]
    numpy.testing.assert_array_equal(found, whole[2:5] if axis == 0 else whole[:, 2:5])
