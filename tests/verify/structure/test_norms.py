"""Norms of fused operators equal the operators that exports write for them."""

from __future__ import annotations

import pytest
from verify.structure.comparing import is_equal, model_of_function, read_by_openvino

INPUTS = "float[rows, columns, 4] x, float[4] w, float[4] b"
APART = """axis = Constant <value = int64[1] {2}> () epsilon = Constant <value_float = 0.001> ()
    mean = ReduceMean (x, axis) d = %s squares = Mul (d, d) v = ReduceMean (squares, axis)
    shifted = Add (v, epsilon) root = Sqrt (shifted) n = Div (d, root) y = Mul (n, w)"""


def model(body: str):
    return model_of_function(body, INPUTS, opset=18)


def test_a_layer_norm_is_centered():
    fused = model("y = LayerNormalization <epsilon = 0.001> (x, w)")
    assert is_equal(fused, model(APART % "Sub (x, mean)"))
    assert is_equal(fused, read_by_openvino(fused))
    assert not is_equal(fused, model(APART % "Identity (x)"))
    assert not is_equal(fused, model("y = LayerNormalization <epsilon = 0.002> (x, w)"))
    assert not is_equal(fused, model("y = LayerNormalization <epsilon = 0.001> (x, w, b)"))


@pytest.mark.parametrize("axis", [0, 1])
def test_norms_of_several_axes_are_not_defined(axis):
    wide = model_of_function(
        f"y = LayerNormalization <axis = {axis}> (x, s)", "float[2, 3, 4] x, float[2, 3, 4] s, float[3, 4] t"
    )
    last = model_of_function("y = LayerNormalization (x, s)", "float[2, 3, 4] x, float[2, 3, 4] s, float[3, 4] t")
    assert not is_equal(wide, last)
