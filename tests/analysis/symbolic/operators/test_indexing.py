"""Elements of Gather, scatter and Pad operators equal those that runtimes compute."""

import numpy
import pytest
from support.elements import evaluated

X = numpy.arange(1, 13).reshape(3, 4)


@pytest.mark.parametrize(
    "text",
    [
        "%y = Gather(%x, 1) {axis=0}",
        "%y = Gather(%x, [-1, 0]) {axis=1}",
        "%y = Gather(%x, [[0, 2], [1, 1]]) {axis=1}",
        "%y = GatherElements(%x, [[0, -1, 2, 1]]) {axis=0}",
        "%y = GatherND(%x, [[0, 1], [2, -1]])",
        "%y = GatherND(%x, [[2], [0]])",
        "%y = onnx.Pad(%x, [1, 0, 0, 2])",
        "%y = onnx.Pad(%x, [0, 1, 1, 0], 9)",
        "%y = onnx.Pad(%x, [-1, 0, 0, -1])",
        "%new = Multiply(%x, 10)\n%row = Slice(%new, [0], [1]) {axes=[0]}\n%y = ScatterNDUpdate(%x, [[2]], %row)",
        "%new = Multiply(%x, 10)\n%row = Slice(%new, [0], [1]) {axes=[0]}\n%y = ScatterNDUpdate(%x, [[-3]], %row)",
        "%n = Multiply(%x, 10)\n%r = Slice(%n, [0], [1]) {axes=[0]}\n"
        "%y = ScatterElementsUpdate(%x, [[1, 1, 1, 1]], %r) {axis=0}",
        "%n = Multiply(%x, 10)\n%r = Slice(%n, [0], [1]) {axes=[0]}\n"
        "%y = ScatterElementsUpdate(%x, [[-1, -1, -1, -1]], %r) {axis=0}",
    ],
)
def test_onnx(text):
    numpy.testing.assert_array_equal(*evaluated(f"%x = Parameter : i64[3, 4]\n{text}", x=X))


def test_indices_of_unknown_rank_are_unknown():
    text = "%x = Parameter : i64[3, 4]\n%p = Parameter : i64[a, 2, 2]\n%i = onnx.Squeeze(%p)\n"
    with pytest.raises(LookupError, match="rank"):
        evaluated(f"{text}%y = Gather(%x, %i) {{axis=0}} : i64[2, 2, 4]", x=X, p=numpy.ones((1, 2, 2), int))


@pytest.mark.parametrize(("places", "axis"), [("[1, 2]", 1), ("[2]", 0)])
def test_scatters_of_slices(places, axis):
    count, text = places.count(",") + 1, "%x = Parameter : i64[3, 4]\n%n = Multiply(%x, 10)\n"
    text += f"%r = Slice(%n, [0], [{count}], [1], [{axis}])\n%y = ScatterUpdate(%x, {places}, %r, {axis})"
    numpy.testing.assert_array_equal(*evaluated(text, "openvino", x=X))


def test_pads_of_openvino_have_two_ends():
    text = "%x = Parameter : i64[3, 4]\n%y = opset12.Pad(%x, [1, 0], [0, -2], 9) {pad_mode=constant}"
    numpy.testing.assert_array_equal(*evaluated(text, "openvino", x=X))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%y = ScatterNDUpdate(%x, [[2]], [[1, 2, 3, 4]]:i64) {reduction=add}", "attribute reduction"),
        ("%y = ScatterElementsUpdate(%x, [[1, 0]], [[1, 2]]:i64) {axis=0}", "one whole slice"),
        ("%y = onnx.Pad(%x, [1, 0, 0, 0]) {mode=edge}", "pad_mode is not constant"),
        ("%y = onnx.Pad(%x, [1, 1], 0, [1])", "input for axes"),
        ("%y = onnx.GatherND(%x, [[0], [1], [2]]) {batch_dims=1}", "batch_dims"),
    ],
)
def test_other_forms_are_unknown(text, reason):
    with pytest.raises(LookupError, match=reason):
        evaluated(f"%x = Parameter : i64[3, 4]\n{text}", x=X)
