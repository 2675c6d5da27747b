"""Norms of fused operators equal the operators that exports write for them."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest
from verify.structure.comparing import is_equal, model_of_function, read_by_openvino

from graphpass.dialects.onnx.model import OnnxModel

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


@pytest.mark.parametrize("operator", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_a_row_that_is_added_to_all(operator):
    """The second input may have one row, which is broadcast."""

    def model_of(added: str) -> OnnxModel:
        text = f"""<ir_version: 9, opset_import: ["": 19, "com.microsoft": 1]>
        added (float[b, n, 4] x, float[b, n, 4] z, float[4] w) => (float[b, n, 8] logits) {{
            zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
            row = Slice (z, zero, one, zero) y = com.microsoft.{operator} (x, {added}, w)
            logits = Concat <axis = -1> (y, y)
        }}"""
        return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))

    assert is_equal(model_of("row"), model_of("row"))
    assert not is_equal(model_of("row"), model_of("z"))
