"""separate-past: a Concat in place of the past inside of ONNX's Attention."""

import numpy
import pytest
from onnx import helper, numpy_helper
from support.models import exporters
from support.pipelines import run_passes

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.io import load
from graphpass.passes.attention.separate_past import SeparatePast, with_past
from graphpass.verify import compare


def given(mask: str) -> OnnxModel:
    """mobius's llama, whose Attention takes booleans, numbers or no mask."""
    model = load(exporters("mobius", "llama")).clone()
    assert isinstance(model, OnnxModel)
    graph = model.proto.graph
    attention = [node for node in graph.node if node.op_type == "Attention"]
    place = min(list(graph.node).index(node) for node in attention)
    if mask == "numbers":
        numbers = {"shown": 0.0, "hidden": -1e4}
        for name, number in numbers.items():
            graph.initializer.append(numpy_helper.from_array(numpy.array(number, numpy.float32), name))
        graph.node.insert(place, helper.make_node("Where", [attention[0].input[3], *numbers], ["bias"]))
    for node in attention if mask != "booleans" else ():
        node.input[3] = "bias" if mask == "numbers" else ""
    model.mark_edited()
    return model


@pytest.mark.parametrize("mask", ["booleans", "numbers", "none"])
def test_pasts_are_separated(mask):
    model = given(mask)
    after, result = run_passes(model, SeparatePast())
    assert result.statistics == {"pasts separated": 2}
    assert not any(with_past(after.graph))
    assert compare(model, after, steps=3).passed
    if mask == "booleans":
        fused = run_passes(after, "fuse-group-query-attention")[1]
        assert fused.statistics == {"attention fused": 2, "attention left": 0}


def test_operands_with_heads_as_an_axis():
    model = given("booleans")
    graph = model.proto.graph
    for node in [node for node in graph.node if node.op_type == "Attention"]:
        sizes = {0: 4, 1: 2, 2: 2}
        for port, heads in sizes.items():
            flat, name = node.input[port], f"{node.name}/{port}"
            shape = numpy_helper.from_array(numpy.array([0, 0, heads, 16], numpy.int64), f"{name}/shape")
            graph.initializer.append(shape)
            place = list(graph.node).index(node)
            graph.node.insert(place, helper.make_node("Reshape", [flat, shape.name], [f"{name}/split"]))
            made = helper.make_node("Transpose", [f"{name}/split"], [f"{name}/heads"], perm=[0, 2, 1, 3])
            graph.node.insert(place + 1, made)
            node.input[port] = f"{name}/heads"
        output = node.output[0]
        node.output[0] = f"{node.name}/result"
        place = list(graph.node).index(node)
        shape = numpy_helper.from_array(numpy.array([0, 0, 64], numpy.int64), f"{node.name}/merged")
        graph.initializer.append(shape)
        rows = helper.make_node("Transpose", [node.output[0]], [f"{node.name}/rows"], perm=[0, 2, 1, 3])
        graph.node.insert(place + 1, rows)
        graph.node.insert(place + 2, helper.make_node("Reshape", [f"{node.name}/rows", shape.name], [output]))
    model.mark_edited()
    after, result = run_passes(model, SeparatePast())
    assert result.statistics == {"pasts separated": 2}
    assert compare(load(exporters("mobius", "llama")), after, steps=3).passed
