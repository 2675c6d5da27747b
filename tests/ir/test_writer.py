"""Creation of nodes, in both dialects."""

from __future__ import annotations

import numpy
import pytest

from graphpass.testing import parse_model

RELU = """
%x = Parameter : f32[batch, 4]
%y = Relu(%x) : f32[batch, 4]
Result(%y) {name=y}
"""


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize("element_type", ["f16", "bf16", "i64", "f64"])
def test_arrays_become_constants_of_a_type(dialect, element_type):
    model = parse_model(RELU, dialect)
    (read,), (relu,) = model.graph.of_op("Parameter"), model.graph.of_op("Relu")
    rewriter = model.rewriter()
    constant = rewriter.constant(numpy.arange(4, dtype=numpy.float32), element_type, "array")
    added = rewriter.op("Add", read.outputs[0], rewriter.op("Convert", constant, name="wide", to="f32"), name="added")
    assert rewriter.redirect_uses(read.outputs[0], added, lambda use: use.node == relu) == 1
    assert rewriter.finish()
    (kept,) = model.graph.of_op("Constant")
    assert kept.outputs[0].element_type == element_type
    assert model.graph.constant(kept.outputs[0]).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_names_begin_with_the_prefix_and_are_numbered(dialect):
    model = parse_model(RELU, dialect)
    (relu,) = model.graph.of_op("Relu")
    rewriter = model.rewriter()
    write = rewriter.under("mask")
    once = write.op("Tanh", relu.source())
    rewriter.replace(relu.outputs[0], write.op("Tanh", write.op("Sigmoid", once, label="Tanh")))
    assert rewriter.finish()
    names = {node.name for node in model.graph.nodes if node.op in {"Tanh", "Sigmoid"}}
    assert names > {"mask/Tanh", "mask/Tanh_1"}
