"""Weights that the candidate has in fewer bits are rounded in the reference, too."""

from __future__ import annotations

import pytest
from support.loaded import converted, exported

import graphpass


def test_the_result_is_the_reference_with_its_weights_rounded():
    result = converted(exported("llama/onnx"), "web{dtype=q4}")
    record = next(record for record in result.records if record.step.name == "quantize-weights")
    assert record.result.statistics == {"products": 15, "weights": 15}
    assert record.result.notes[0].startswith("4 bits change logits by ")
    compared = graphpass.verify(exported("llama/onnx"), result.model, steps=2)
    assert compared.passed
    assert compared.max_abs_difference < 1e-4
    assert "rounding of 15 weights to 4 bits: the reference runs with the same rounding" in compared.skipped


@pytest.mark.parametrize("port", [1, 2, 3])
def test_other_numbers_are_a_difference(port):
    model = converted(exported("llama/onnx"), "web{dtype=q4}").model.clone()
    node = next(node for node in model.proto.graph.node if node.op_type == "MatMulNBits")
    tensor = next(tensor for tensor in model.proto.graph.initializer if tensor.name == node.input[port])
    damaged = bytearray(tensor.raw_data)
    damaged[3] ^= 0x10
    tensor.raw_data = bytes(damaged)
    model.mark_edited()
    assert not graphpass.verify(exported("llama/onnx"), model, steps=2).passed
