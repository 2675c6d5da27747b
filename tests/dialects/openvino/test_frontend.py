"""Operators that OpenVINO's frontend does not read, with a hint."""

import pytest

from graphpass.dialects.openvino.frontend import lowering_hint
from graphpass.errors import UnsupportedError
from graphpass.testing import parse_model, run

TEXT = """%x = Parameter : f32[1, n, 8]
%w = Constant : f32[8, 1, 4]
%y, %present = com.microsoft.CausalConvWithState(%x, %w, _, _) {channels_last=1}
Result(%y) {name=y}"""


@pytest.mark.parametrize(
    ("unread", "has_hint"),
    [(["Attention"], True), (["Attention", "MoE"], True), (["Attention", "Unheard"], False), ([], False)],
)
def test_the_hint_is_given_if_all_can_be_lowered(unread, has_hint):
    assert (lowering_hint(unread) is not None) is has_hint


def test_conversions_name_the_pass_that_lowers():
    with pytest.raises(UnsupportedError) as error:
        run(parse_model(TEXT), "to-openvino")
    assert error.value.hint.startswith("run lower-operators before to-openvino")
    assert run(parse_model(TEXT), "lower-operators,to-openvino").dialect == "openvino"
