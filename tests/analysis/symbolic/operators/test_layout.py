"""Elements of layout operators equal those that runtimes compute."""

import numpy
import pytest
from support.elements import evaluated

X = numpy.arange(24).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "text",
    [
        "%y = Reshape(%x, [4, 6])",
        "%y = Reshape(%x, [3, -1])",
        "%y = Flatten(%x) {axis=2}",
        "%y = Transpose(%x) {order=[2, 0, 1]}",
        "%y = onnx.Transpose(%x)",
        "%y = Unsqueeze(%x) {axes=[0, -1]}",
        "%a = Unsqueeze(%x) {axes=[1, 3]}\n%y = Squeeze(%a) {axes=[-2]}",
        "%a = Unsqueeze(%x) {axes=[1, 3]}\n%y = onnx.Squeeze(%a)",
        "%y = Broadcast(%x, [2, 2, 1, 4])",
        "%y = Tile(%x, [2, 1, 3])",
        "%a, %y = Split(%x, [1, 3]) {axis=2}",
        "%y = Concat(%x, %x, %x) {axis=1}",
        "%y = Slice(%x, [1], [3]) {axes=[1]}",
        "%y = Slice(%x, [-3], [-1]) {axes=[2]}",
        "%y = Slice(%x, [-9], [9]) {axes=[2]}",
        "%y = Slice(%x, [-1], [-9], [-2]) {axes=[2]}",
        "%y = Slice(%x, [9], [-9], [-1]) {axes=[1]}",
        "%y = Slice(%x, [-9], [-12], [-1]) {axes=[1]}",
        "%y = Slice(%x, [0, 1], [2, 4], [1, 2]) {axes=[1, 2]}",
    ],
)
def test_onnx(text):
    setup = "%x = Parameter : i64[2, 1, 3, 4]\n" if "[2, 2, 1, 4]" in text else "%x = Parameter : i64[2, 3, 4]\n"
    x = X.reshape(2, 1, 3, 4) if "[2, 2, 1, 4]" in text else X
    found, expected = evaluated(setup + text.replace("[2, 2, 1, 4]", "[2, 5, 3, 4]"), x=x)
    numpy.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("axes", ["[0, 1, 2]", "[1, 2, 3]", "[0, 2, 3]"])
def test_a_broadcast_with_a_mapping_of_axes(axes):
    sizes = {"[0, 1, 2]": "[2, 3, 4, 5]", "[1, 2, 3]": "[5, 2, 3, 4]", "[0, 2, 3]": "[2, 5, 3, 4]"}[axes]
    text = f"%x = Parameter : i64[2, 3, 4]\n%y = Broadcast(%x, {sizes}, {axes}) {{mode=explicit}}"
    numpy.testing.assert_array_equal(*evaluated(text, "openvino", x=X))


@pytest.mark.parametrize(
    "masks",
    [
        "begin_mask=[0, 0, 0], end_mask=[0, 0, 0]",
        "begin_mask=[1, 0, 0], end_mask=[0, 1, 0]",
        "begin_mask=[0, 0, 0], end_mask=[0, 0, 0], shrink_axis_mask=[0, 1, 0]",
        "begin_mask=[0, 0, 0], end_mask=[0, 0, 0], new_axis_mask=[1, 0, 0]",
    ],
)
def test_strided_slices(masks):
    text = "%x = Parameter : i64[2, 3, 4]\n%y = StridedSlice(%x, [0, 1, 0], [2, 3, 4], [1, 1, 2]) {" + masks + "}"
    numpy.testing.assert_array_equal(*evaluated(text, "openvino", x=X))


@pytest.mark.parametrize(
    ("masks", "reason"),
    [
        ("begin_mask=[0, 1, 0], end_mask=[0, 0, 0], shrink_axis_mask=[0, 1, 0]", "devices differ"),
        ("begin_mask=[0, 0, 0], end_mask=[0, 0, 0], ellipsis_mask=[1, 0, 0]", "ellipsis_mask"),
    ],
)
def test_strided_slices_that_devices_read_differently_are_unknown(masks, reason):
    with pytest.raises(LookupError, match=reason):
        test_strided_slices(masks)
