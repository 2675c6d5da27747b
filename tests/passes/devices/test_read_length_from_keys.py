"""read-length-from-keys: no value is asked for a length that a key is proved to share; the same numbers."""

from __future__ import annotations

import pytest
from openvino import opset13 as ops
from support.decode import compiled, fused_attention, greedy
from support.loaded import openvino_model
from support.models import reference
from support.pipelines import run_passes
from targets.state_mutants import with_length_of_value, with_length_of_variable

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.passes.devices.read_length_from_keys import ReadLengthFromKeys


def run(model: OpenVINOModel) -> tuple[OpenVINOModel, object]:
    return run_passes(model, ReadLengthFromKeys())


def measured(model: OpenVINOModel) -> set[str]:
    """The variables whose past is asked for its size."""
    found = set()
    for op in model.ov_model.get_ops():
        if op.get_type_name() == "ShapeOf":
            gather = op.input_value(0).get_node()
            read = gather.input_value(0).get_node() if gather.get_type_name() == "Gather" else gather
            found |= {read.get_variable_id()} if read.get_type_name() == "ReadValue" else set()
    return found


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3_next"])
def test_lengths_are_read_from_keys(name):
    before = with_length_of_value(openvino_model(name))
    assert any(".value" in variable for variable in measured(before))
    after, result = run(before)
    assert result.changed
    assert not any(".value" in variable for variable in measured(after))
    model, expected = compiled(after.ov_model), reference(name)
    assert greedy(model.create_infer_request(), [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]
    assert fused_attention(model) == fused_attention(compiled(before.ov_model))


def test_lengths_are_read_after_the_beam_index():
    before = with_length_of_variable(openvino_model("llama"))
    after, result = run(before)
    assert result.changed
    shaped = [op.input_value(0).get_node() for op in after.ov_model.get_ops() if op.get_type_name() == "ShapeOf"]
    assert "ReadValue" not in {node.get_type_name() for node in shaped}
    model, expected = compiled(after.ov_model), reference("llama")
    assert greedy(model.create_infer_request(), [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]


def test_only_the_length_is_read_from_keys_of_another_size():
    """deepseek_v3's keys hold 24 numbers a head, its values 16."""
    before = with_length_of_value(openvino_model("deepseek_v3")).clone()
    value = next(
        op
        for op in before.ov_model.get_ops()
        if op.get_type_name() == "Gather" and op.input_value(0).get_node().get_type_name() == "ReadValue"
        if "0.value" in op.input_value(0).get_node().get_variable_id()
    )
    before.ov_model.add_results([ops.result(ops.abs(ops.shape_of(value)), name="shape")])
    before.ov_model.validate_nodes_and_infer_types()
    before.mark_edited()
    after, result = run(before)
    assert result.changed
    assert {".".join(variable.split(".")[-2:]) for variable in measured(after)} == {"0.key", "0.value"}


def test_keys_of_another_growth_give_no_length():
    before = with_length_of_value(openvino_model("llama")).clone()
    for sink in before.ov_model.get_sinks():
        if sink.get_variable_id().endswith(".key"):
            grown = sink.input_value(0)
            tail = ops.slice(grown, *(ops.constant([number]) for number in (0, 1, 1, 2)))
            sink.input(0).replace_source_output(ops.concat([grown, tail], 2).output(0))
    before.ov_model.validate_nodes_and_infer_types()
    before.mark_edited()
    assert not run(before)[1].changed


def test_a_second_run_changes_nothing():
    once, _ = run(with_length_of_value(openvino_model("llama")))
    assert not run(once)[1].changed


def test_lengths_read_from_keys_are_unchanged():
    model = openvino_model("llama")
    after, result = run(model)
    assert not result.changed
    assert after.digest() == model.digest()
