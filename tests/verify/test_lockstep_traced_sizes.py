"""Proofs of models that run fewer rows or new tokens than their shapes leave open."""

from __future__ import annotations

import numpy
import onnx
from onnx import helper
from support.loaded import onnx_model

from graphpass.verify import compare


def after_embedding(make, **tensors):
    """llama with nodes that make hidden states of those of the embedding, which is called ``hidden`` then."""
    model = onnx_model("llama")
    graph = model.proto.graph
    embedding = next(node for node in graph.node if node.op_type == "Gather" and "embed" in node.name)
    place = list(graph.node).index(embedding) + 1
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in tensors.items())
    for offset, node in enumerate(make(list(embedding.output))):
        graph.node.insert(place + offset, node)
    embedding.output[0] = "hidden"
    model.mark_edited()
    return model


def traced_with_one_row():
    """An export whose hidden states were reshaped to the one row that was traced."""

    def make(outputs):
        return [helper.make_node("Reshape", ["hidden", "one_row"], outputs, name="one_row")]

    return after_embedding(make, one_row=numpy.array([1, -1, 64]))


def test_one_row_is_proven_and_the_rest_is_reported():
    model = traced_with_one_row()
    found = compare(model, model.clone(), steps=2)
    assert found.passed
    assert any(words.startswith("several rows: the reference supports one: ") for words in found.skipped)
    assert all(len(run.prompt_ids) == 1 for run in found.sequences)


def test_a_result_of_fixed_batch_is_different():
    found = compare(onnx_model("llama"), traced_with_one_row(), steps=2)
    assert not found.passed
    assert "the reference runs, the candidate does not" in str(found.divergence)


def traced_with_eight_tokens():
    """An export that takes no more new tokens at once, as of one chunk of a recurrence."""

    def make(outputs):
        return [
            helper.make_node("Shape", ["input_ids"], ["sizes"], name="sizes"),
            helper.make_node("Gather", ["sizes", "axis"], ["tokens"], name="tokens"),
            helper.make_node("Sub", ["tokens", "one"], ["last"], name="last"),
            helper.make_node("Gather", ["zeros", "last"], ["nothing"], name="nothing"),
            helper.make_node("Squeeze", ["nothing", "axis"], ["zero"], name="zero"),
            helper.make_node("Add", ["hidden", "zero"], outputs, name="few"),
        ]

    zeros = numpy.zeros((8, 1, 1, 1), numpy.float32)
    return after_embedding(make, axis=numpy.array([1]), one=numpy.array([1]), zeros=zeros)


def test_few_tokens_are_proven_and_longer_prompts_reported():
    model = traced_with_eight_tokens()
    found = compare(model, model.clone(), steps=2)
    assert found.passed
    assert any(words.startswith("longer prompts: the reference does not run them: ") for words in found.skipped)
    assert max(len(row) for run in found.sequences for row in run.prompt_ids) == 8
    assert len(found.sequences) > 3
