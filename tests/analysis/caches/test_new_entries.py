"""Outputs with the new entries of a cache."""

from __future__ import annotations

import pytest

from graphpass.analysis.caches.new_entries import find_new_entries
from graphpass.testing import parse_model

TEXT = """
%past = Parameter : f32[b, past, 4]
%x = Parameter : i64[b, n]
%table = Constant : f32[9, 4]
%new = Gather(%table, %x) {{axis=0}} : f32[b, n, 4]
%other = Relu(%new)
%all = Concat({operands}) {{axis=1}}
%w = Constant : f32[4, 2]
%y = MatMul(%all, %w)
Result(%y) {{name=y}}
Result(%new) {{name=new}}
"""


@pytest.mark.parametrize(
    ("operands", "axes"), [("%past, %new", [1]), ("%new, %past", []), ("%past, %other", []), ("%past, %new, %new", [])]
)
def test_the_output_is_appended_to_an_input(operands, axes):
    found = find_new_entries(parse_model(TEXT.format(operands=operands)))
    assert [each.axis for each in found] == axes


def test_entries_of_a_past_of_fixed_size_are_not_appended():
    text = TEXT.format(operands="%past, %new").replace("f32[b, past, 4]", "f32[b, 7, 4]")
    assert find_new_entries(parse_model(text)) == ()


CUT = """
%past = Parameter : f32[{past}]
%x = Parameter : i64[b, n]
%table = Constant : f32[9, 4]
%new = Gather(%table, %x) {{axis=0}} : f32[b, n, 4]
%laid = Transpose(%past) {{order={order}}}
%all = Concat(%laid, %new) {{axis=1}}
%w = Constant : f32[4, 2]
%y = MatMul(%all, %w)
%shape = ShapeOf(%x)
%n = Gather(%shape, [1]) {{axis=0}}
%start = {start}
%cut = Slice(%all, %start, {stop}) {{axes=[1]}}
%out = Transpose(%cut) {{order=[1, 0, 2]}}
Result(%y) {{name=y}}
Result(%out) {{name=z}}
"""
END = "[9223372036854775807]"


@pytest.mark.parametrize(
    ("past", "order", "start", "stop", "axes"),
    [
        ("past, b, 4", [1, 0, 2], "Negative(%n)", END, [0]),
        ("b, past, 4", [0, 1, 2], "Negative(%n)", END, []),
        ("past, b, 4", [1, 0, 2], "Multiply(%n, -2)", END, []),
        ("past, b, 4", [1, 0, 2], "Multiply(%n, 0)", "%n", []),
    ],
)
def test_the_output_is_cut_from_the_end_of_past_and_new(past, order, start, stop, axes):
    found = find_new_entries(parse_model(CUT.format(past=past, order=order, start=start, stop=stop)))
    assert [(each.axis, each.reader.name) for each in found] == [(axis, "out") for axis in axes]
