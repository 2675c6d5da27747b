"""Ranges that slices keep."""

import pytest

from graphpass.ir.cuts import NO_END, Cut, cuts
from graphpass.testing import parse_model

END = 2**63 - 1


def cuts_of(line, dialect="openvino"):
    text = f"""
%x = Parameter : f32[n, 6, 4]
%at = Parameter : i64[1]
%y = {line}
Result(%y) {{name=y}}"""
    graph = parse_model(text, dialect).graph
    return cuts(graph.producer(graph.writes["y"].source()), graph.constant)


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Slice(%x, [1], [3]) {axes=[1]}", [Cut(1, 1, 3, 1)]),
        ("Slice(%x, [0, -2], [2, 9], [1, 2]) {axes=[1, 2]}", [Cut(1, 0, 2, 1), Cut(2, -2, 9, 2)]),
        (f"Slice(%x, %at, [{END}]) {{axes=[0]}}", [Cut(0, None, END, 1)]),
        ("Relu(%x)", []),
    ],
)
def test_slices_keep_ranges(dialect, line, found):
    assert list(cuts_of(line, dialect)) == found


def strided(begin, end, steps="[1, 1]", **masks):
    names = ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    stated = ", ".join(f"{name}={masks.get(name, [0, 0])}" for name in names)
    return cuts_of(f"StridedSlice(%x, {begin}, {end}, {steps}) {{{stated}}}")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, [Cut(0, 1, 2, 1), Cut(1, -1, 3, 1)]),
        ({"begin_mask": [1, 0], "end_mask": [0, 1]}, [Cut(0, 0, 2, 1), Cut(1, -1, NO_END, 1)]),
        ({"shrink_axis_mask": [1, 1]}, [Cut(0, 1, 2, 1, keeps_axis=False), Cut(1, -1, NO_END, 1, keeps_axis=False)]),
        ({"steps": "[1, -1]", "end_mask": [0, 1]}, []),
        ({"new_axis_mask": [1, 0]}, []),
    ],
)
def test_masks_of_a_strided_slice_open_its_bounds(given, found):
    assert list(strided("[1, -1]", "[2, 3]", **given)) == found


def test_a_range_is_whole_from_the_first_to_no_end():
    assert (Cut(0, 0, NO_END, 1).starts_at_first, Cut(0, 0, NO_END, 1).reaches_end) == (True, True)
    assert not Cut(0, 0, 9, 2).starts_at_first
    assert not Cut(0, None, NO_END, 1).starts_at_first
    assert not Cut(0, 0, NO_END - 1, 1).reaches_end
    assert not Cut(0, 0, None, 1).reaches_end
