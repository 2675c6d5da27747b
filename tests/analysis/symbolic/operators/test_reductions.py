"""Elements of reductions, CumSum and small matrix products equal those that runtimes compute."""

import numpy
import pytest
from support.elements import evaluated

X = numpy.array([[3, -1, 2, 5], [0, 4, -6, 1], [7, 7, 1, 2]])


@pytest.mark.parametrize(
    "text",
    [
        *(f"%y = {op}(%x) {{axes=[1]}}" for op in ("ReduceMax", "ReduceMin", "ReduceSum")),
        "%y = ReduceSum(%x) {axes=[0], keep=true}",
        "%s = Unsqueeze(%x) {axes=[1]}\n%y = ReduceSum(%s) {axes=[1, -1]}",
        "%s = Slice(%x, [0], [1]) {axes=[0]}\n%y = ReduceMax(%s) {axes=[0]}",
        "%y = onnx.CumSum(%x, 1)",
        "%y = onnx.CumSum(%x, -2)",
        "%c = Greater(%x, 1)\n%b = Convert(%c) {to=i64}\n%y = onnx.CumSum(%b, 0)",
        "%t = Transpose(%x) {order=[1, 0]}\n%a = Slice(%x, [0], [2]) {axes=[1]}\n%b = Slice(%t, [0], [2]) {axes=[0]}\n"
        "%f = Convert(%a) {to=f32}\n%g = Convert(%b) {to=f32}\n%y = MatMul(%f, %g)",
    ],
)
def test_onnx(text):
    numpy.testing.assert_array_equal(*evaluated(f"%x = Parameter : i64[3, 4]\n{text}", x=X))


@pytest.mark.parametrize(("a", "b"), [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_transposed_operands(a, b):
    text = f"%a = Parameter : f32[2, {'2, 3' if a else '3, 2'}]\n%b = Parameter : f32[{'4, 2' if b else '2, 4'}]\n"
    text += f"%y = MatMul(%a, %b) {{transpose_a={str(a).lower()}, transpose_b={str(b).lower()}}}"
    arrays = {"a": numpy.arange(12.0).reshape(2, *((2, 3) if a else (3, 2))), "b": numpy.arange(8.0)}
    arrays["b"] = arrays["b"].reshape((4, 2) if b else (2, 4))
    arrays = {name: array.astype(numpy.float32) for name, array in arrays.items()}
    numpy.testing.assert_array_equal(*evaluated(text, "openvino", **arrays))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%y = ReduceMax(%x) {axes=[0, 1]}", "several axes"),
        ("%e = Slice(%x, [0], [0]) {axes=[1]}\n%y = ReduceMax(%e) {axes=[1]}", "size 0"),
        ("%y = onnx.CumSum(%x, 1) {exclusive=1}", "exclusive or reversed"),
        ("%y = onnx.CumSum(%x, 1) {reverse=1}", "exclusive or reversed"),
        ("%f = Convert(%x) {to=f32}\n%r = Exp(%f)\n%y = onnx.CumSum(%r, 1)", "its operand is real"),
        ("%w = Constant : f32[9, 2]\n%f = Convert(%x) {to=f32}\n%a = Concat(%f, %f, %f) {axis=1}\n"
         "%b = Slice(%a, [0], [9]) {axes=[1]}\n%y = MatMul(%b, %w)", "unknown or large size"),
    ],
)  # fmt: skip
def test_other_forms_are_unknown(text, reason):
    with pytest.raises(LookupError, match=reason):
        evaluated(f"%x = Parameter : i64[3, 4]\n{text}", x=X)
