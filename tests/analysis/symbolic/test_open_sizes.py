"""Sizes that are not linear in dimensions equal those that runtimes compute."""

import numpy
import pytest
from support.elements import computed_shape

X = {"x": numpy.zeros([5, 6], numpy.float32), "i": numpy.array(3), "k": numpy.array(1)}


@pytest.mark.parametrize(
    "text",
    [
        "%y = Reshape(%x, [2, -1])",
        "%y = Reshape(%x, [0, 2, -1])",
        "%n = Unsqueeze(%i) {axes=[0]}\n%s = Concat([0], %n, [-1]) {axis=0}\n%y = Reshape(%x, %s)",
        "%n = Unsqueeze(%k) {axes=[0]}\n%s = Concat(%n, [6]) {axis=0}\n%y = Broadcast(%x, %s)",
        "%y = onnx.Tile(%x, [2, 3])",
        "%n = Unsqueeze(%i) {axes=[0]}\n%s = Concat(%n, [2]) {axis=0}\n%y = onnx.Tile(%x, %s)",
        "%n = Unsqueeze(%i) {axes=[0]}\n%s = Concat(%n, [1, 6]) {axis=0}\n%y = Broadcast(%x, %s)",
        "%n = Unsqueeze(%i) {axes=[0]}\n%y = ConstantOfShape(%n) {value=[1.0]:f32}",
        "%n = Unsqueeze(%i) {axes=[0]}\n%p = Concat([0, 1], %n, [2]) {axis=0}\n%y = onnx.Pad(%x, %p)",
        "%y = Range(1, %i, 1)",
        "%l = Shape(%x) {end=1}\n%m = Minimum(%l, [0])\n%e = Add(%l, %m)\n%y = Slice(%x, [0], %e) {axes=[0]}",
        "%y = onnx.Gemm(%x, %x) {transA=1}",
        "%y = onnx.Gemm(%x, %x) {transB=1}",
        "%s = onnx.Gemm(%x, %x) {transB=1}\n%y = Flatten(%s) {axis=2}",
        "%s = onnx.Gemm(%x, %x) {transB=1}\n%y = Flatten(%s) {axis=-2}",
        '%y = onnx.Einsum(%x, %x) {equation="ij,kj->ki"}',
        "%t = Transpose(%x) {order=[1, 0]}\n%u = Unsqueeze(%t) {axes=[0]}\n%w = Constant : f32[4, 6, 3]\n"
        "%y = Conv(%u, %w) {pads=[1, 2], dilations=[2]}",
    ],
)
def test_onnx(text):
    found, expected = computed_shape(
        "%x = Parameter : f32[n, 6]\n%i = Parameter : i64[]\n%k = Parameter : i64[]\n" + text, **X
    )
    assert found == expected


def test_pads_of_some_axes_are_unknown():
    text = "%x = Parameter : f32[n, 6]\n%n = Parameter : i64[1]\n%p = Concat(%n, [2]) {axis=0}\n"
    with pytest.raises(LookupError):
        computed_shape(text + "%y = onnx.Pad(%x, %p, 0.0, [0])", x=X["x"], n=numpy.array([1]))
