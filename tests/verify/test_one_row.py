"""Proofs of models that run one row alone, though their shapes leave the batch open."""

from __future__ import annotations

import numpy
import onnx
from onnx import helper
from support.loaded import onnx_model

from graphpass.verify import compare


def traced_with_one_row():
    """An export whose hidden states were reshaped to the one row that was traced."""
    model = onnx_model("llama")
    graph = model.proto.graph
    embedding = next(node for node in graph.node if node.op_type == "Gather" and "embed" in node.name)
    graph.initializer.append(onnx.numpy_helper.from_array(numpy.array([1, -1, 64]), "one_row"))
    whole = helper.make_node("Reshape", ["all_rows", "one_row"], list(embedding.output), name="one_row")
    graph.node.insert(list(graph.node).index(embedding) + 1, whole)
    embedding.output[0] = "all_rows"
    model.mark_edited()
    return model


def test_one_row_is_proven_and_the_rest_is_reported():
    model = traced_with_one_row()
    found = compare(model, model.clone(), steps=2)
    assert found.passed
    assert any(words.startswith("several rows: the reference takes one: ") for words in found.skipped)
    assert all(len(run.prompt_ids) == 1 for run in found.sequences)


def test_a_result_that_lost_its_batch_is_different():
    found = compare(onnx_model("llama"), traced_with_one_row(), steps=2)
    assert not found.passed
    assert "the reference runs, the candidate does not" in str(found.divergence)
