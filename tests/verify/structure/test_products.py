"""Matrix products are sums over the contracted axis, in every form of exports."""

from __future__ import annotations

import numpy
import pytest
from onnx import TensorProto
from verify.structure.comparing import is_equal, model_of_function, model_of_operator, read_by_openvino

WEIGHT = numpy.arange(8, dtype="f4").reshape(4, 2)
REAL = TensorProto.FLOAT


def test_einsum_is_equal_to_its_product():
    product = model_of_operator("MatMul", REAL, WEIGHT)
    assert is_equal(product, model_of_operator("Einsum", REAL, WEIGHT, equation="bik,kj->bij"))


@pytest.mark.parametrize(
    ("gemm", "apart"),
    [
        ("Gemm (x, w)", "r = MatMul (x, w)"),
        ("Gemm <alpha = 2.0> (x, w, b)", "p = MatMul (x, w) q = Add (p, p) r = Add (q, b)"),
        ("Gemm <beta = 2.0> (x, w, b)", "p = MatMul (x, w) c = Add (b, b) r = Add (p, c)"),
        ("Gemm <transB = 1> (x, w)", "t = Transpose (w) r = MatMul (x, t)"),
    ],
)
def test_gemm_is_a_product_and_a_sum(gemm, apart):
    fused, equal, other = (
        model_of_function(f"{body} y = Unsqueeze (r, zero)", "float[rows, 4] x, float[4, 4] w, float[4] b")
        for body in (f"r = {gemm}", apart, "r = MatMul (x, w) ")
    )
    assert is_equal(fused, equal)
    assert is_equal(fused, read_by_openvino(fused))
    assert is_equal(fused, other) == (gemm == "Gemm (x, w)")
