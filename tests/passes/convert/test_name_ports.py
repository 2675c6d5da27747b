"""name-ports: inputs and outputs get the names by which runtimes feed them."""

from __future__ import annotations

import numpy
import pytest
from support.loaded import openvino_model

import graphpass
from graphpass.errors import UnsupportedError
from graphpass.runtime import open_session
from graphpass.testing import tiny_model

NAMES = {"input_ids": "tokens", "attention_mask": "pad", "position_ids": "input_ids.1", "logits": "output"}


def renamed(form: str) -> graphpass.Model:
    model = tiny_model("llama", form)
    rewriter = model.rewriter()
    ports = {node.name: node for node in model.graph.of_op("Parameter", "Result")}
    rewriter.rename_ports({ports[old]: new for old, new in NAMES.items()})
    assert rewriter.finish()
    return model


@pytest.mark.parametrize("form", ["onnx", "openvino", "stateful"])
def test_a_model_runs_after_its_ports_are_named(form):
    model = renamed(form)
    with pytest.raises(UnsupportedError, match="GP320") as refused:
        open_session(model)
    assert "name-ports" in str(refused.value.hint)
    result = graphpass.PassManager(graphpass.parse("name-ports")).run(model)
    assert result.records[-1].result.statistics == {"ports renamed": 4}
    assert "pad is attention_mask" in result.records[-1].result.notes
    expected = open_session(tiny_model("llama", form)).prefill([1, 5, 9])
    numpy.testing.assert_array_equal(open_session(result.model).prefill([1, 5, 9]), expected)


def test_a_second_run_changes_nothing():
    model = graphpass.PassManager(graphpass.parse("name-ports")).run(renamed("onnx")).model
    again = graphpass.PassManager(graphpass.parse("name-ports")).run(model)
    assert not again.records[-1].result.changed


def test_references_of_other_names_are_compared():
    comparison = graphpass.verify(renamed("onnx"), tiny_model("llama"), steps=2)
    assert comparison.passed
    note = "ports that are named by their use (tokens is input_ids, pad is attention_mask, input_ids.1 is position_ids"
    assert any(skipped.startswith(note) for skipped in comparison.skipped)


def traced():
    """llama with the names that openvino.convert_model leaves: of traced values, and none of results."""
    model = openvino_model("llama", "ov-stateless")
    native = model.ov_model
    for number, port in enumerate(native.inputs):
        port.add_names({str(number)})
    for number, port in enumerate(native.outputs):
        node, source = port.get_node(), port.get_node().input(0).get_source_output()
        source.set_names(source.get_names() - port.get_names())
        node.set_friendly_name(f"Result_{number}")
    model.mark_edited()
    return model


def test_openvino_reads_the_names_of_results():
    model = traced()
    result = graphpass.PassManager(graphpass.parse("name-ports")).run(model).model
    assert result.ov_model.input("attention_mask").get_names() == {"attention_mask"}
    assert result.ov_model.output("logits").get_any_name() == "logits"
    assert graphpass.verify(model, result, steps=2).passed
