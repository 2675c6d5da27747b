"""Decoders for the first step, which compute the caches of cross attention."""

import pytest
from support.loaded import exported

from graphpass.engine.pipeline import parse
from graphpass.passes.attention.first_decoders import first_decoder, is_states
from graphpass.testing import parse_model


def test_the_branch_without_past_of_a_merged_decoder():
    merged, first = (exported(f"t5/onnx/{name}.onnx") for name in ("decoder_model_merged", "decoder_model"))
    found = first_decoder(merged)
    assert {port.name for port in found.inputs} == {port.name for port in first.inputs}
    assert {port.name for port in found.outputs} == {port.name for port in first.outputs}


def test_other_decoders_are_returned_after_further_passes():
    first = exported("t5/onnx/decoder_model.onnx")
    assert first_decoder(first) is first
    assert first_decoder(first, parse("to-openvino")).dialect == "openvino"


@pytest.mark.parametrize(
    ("type_", "expected"),
    [("f32[b, n, 4]", True), ("f16[b, n, 4]", True), ("i64[b, n, 4]", False), ("f32[b, n]", False)],
)
def test_states_are_real_and_of_rank_3(type_, expected):
    model = parse_model(f"%x = Parameter : {type_}\n%y = Identity(%x)\nResult(%y) {{name=y}}")
    (parameter,) = model.graph.of_op("Parameter")
    assert is_states(parameter) is expected
