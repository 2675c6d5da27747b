"""Causal convolutions over cached and new columns, and the first operator that differs."""

import pytest

from graphpass.analysis.equations.causal_convs import CausalConv, find_causal_convs
from graphpass.ir.miss import Miss
from graphpass.testing import parse_model, tiny_model

TEXT = """%past = Parameter : f32[b, 6, 3]
%new = Parameter : f32[b, 6, n]
%whole = Concat(%past, %new) {axis=2} : f32[b, 6, m]
%w = Constant : f32[6, 1, 4]
%conv = Conv(%whole, %w) {group=6} : f32[b, 6, n]
%active = Tanh(%conv)
%present = Slice(%whole, [-3], [9223372036854775807]) {axes=[2]}
Result(%active) {name=y}
Result(%present) {name=present}"""


def read(text):
    (found,) = parse_model(text).analysis(find_causal_convs).values()
    return found


def test_a_window_of_the_kernel_is_found():
    found = read(TEXT)
    assert isinstance(found, CausalConv), found
    assert (found.width, found.reach, found.dilation, found.activations) == (3, 3, 1, ())
    assert (found.past.name, found.new.name) == ("past", "new")
    assert found.output == found.made
    assert len(found.presents) == 1


def test_models_have_one_for_each_convolution():
    found = tiny_model("lfm2", layers=4).analysis(find_causal_convs)
    assert len(found) == 2
    assert all(isinstance(each, CausalConv) and each.width == 2 for each in found.values()), found


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("f32[6, 1, 4]", "f32[6, 1, 5]", "past has 3 columns, but a result reads 4 of earlier steps"),
        ("{group=6}", "{group=6, strides=[2]}", "it has auto_pad, or strides other than 1"),
        ("{group=6}", "{group=6, pads=[1, 0]}", "it pads by 1 and 0 columns"),
        ("[-3], [9223372036854775807]", "[-2], [9223372036854775807]", "does not slice its last 3 columns"),
        ("f32[6, 1, 4]", "f32[6, 1, 3]", "results of 1 columns before the new ones are not sliced off"),
    ],
)
def test_other_convolutions_name_the_difference(old, new, reason):
    assert old in TEXT
    text = "\n".join(line.partition(" : ")[0] if line.startswith("%conv") else line for line in TEXT.splitlines())
    found = read(
        (text if old != "{group=6}" else TEXT.replace(" : f32[b, 6, n]\n%active", "\n%active")).replace(old, new)
    )
    assert isinstance(found, Miss)
    assert reason in found.reason


def test_convolutions_of_one_group_are_no_candidates():
    text = TEXT.replace("f32[6, 1, 4]", "f32[6, 6, 4]").replace("{group=6}", "{group=1}")
    assert parse_model(text).analysis(find_causal_convs) == {}
