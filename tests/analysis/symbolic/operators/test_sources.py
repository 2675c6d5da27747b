"""Elements of Range, ShapeOf, ConstantOfShape and Trilu equal those that runtimes compute."""

import numpy
import pytest
from support.elements import evaluated

X = numpy.arange(1, 13).reshape(3, 4)


@pytest.mark.parametrize(
    "text",
    [
        "%y = Range(2, 11, 3)",
        "%y = Range(5, -3, -2)",
        "%y = Range(0.5, 2.0, 0.25)",
        "%y = ShapeOf(%x)",
        "%y = onnx.Shape(%x) {start=-1}",
        "%y = onnx.Shape(%x) {start=0, end=1}",
        "%y = ConstantOfShape([2, 3]) {value=[1.5]:f32}",
        "%y = ConstantOfShape([2]) {value=[true]:boolean}",
        "%y = onnx.Trilu(%x)",
        "%y = onnx.Trilu(%x) {upper=0}",
        "%y = onnx.Trilu(%x, 1) {upper=1}",
        "%y = onnx.Trilu(%x, -1) {upper=0}",
    ],
)
def test_onnx(text):
    numpy.testing.assert_array_equal(*evaluated(f"%x = Parameter : i64[3, 4]\n{text}", x=X))
