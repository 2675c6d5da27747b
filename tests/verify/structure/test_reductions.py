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
