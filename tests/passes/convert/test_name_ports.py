"""name-ports: inputs and outputs get the names by which runtimes feed them."""

from __future__ import annotations

import numpy
import pytest

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
