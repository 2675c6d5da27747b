"""Iterations of Loops and Scans, one after another."""

from __future__ import annotations

import numpy
import onnx
import onnxruntime
import pytest
from dialects.onnx.looping_models import F32, loop, port, scan
from onnx import helper

import graphpass
from graphpass.dialects.onnx.model import OnnxModel


def unrolled(source: OnnxModel) -> OnnxModel:
    result = graphpass.PassManager(graphpass.parse("unroll-loops")).run(source).model
    assert isinstance(result, OnnxModel)
    return result


def outputs(source: OnnxModel) -> list[numpy.ndarray]:
    feeds = {"start": numpy.array([4, 8], numpy.float32), "rows": numpy.arange(6, dtype=numpy.float32).reshape(2, 3)}
    session = onnxruntime.InferenceSession(source.proto.SerializeToString())
    found: list[numpy.ndarray] = session.run(None, {each.name: feeds[each.name] for each in session.get_inputs()})
    return found


@pytest.mark.parametrize("source", [loop(), loop(condition="yes"), scan(0), scan(1)])
def test_iterations_compute_the_same(source: OnnxModel) -> None:
    result = unrolled(source)
    onnx.checker.check_model(result.proto, full_check=True)
    assert not any(result.graph.of_op("Loop", "Scan"))
    for found, expected in zip(outputs(result), outputs(source), strict=True):
        numpy.testing.assert_array_equal(found, expected)
    assert not graphpass.PassManager(graphpass.parse("unroll-loops")).run(result).records[-1].result.changed


ENDS = (
    helper.make_node("ReduceMax", ["next"], ["largest"], keepdims=0),
    helper.make_node("Greater", ["largest", "half"], ["goes"]),
)


NESTED = (
    helper.make_node(
        "If",
        ["go"],
        ["chosen"],
        then_branch=helper.make_graph([helper.make_node("Identity", ["next"], ["a"])], "a", [], [port("a", F32, 2)]),
        else_branch=helper.make_graph([helper.make_node("Identity", ["state"], ["b"])], "b", [], [port("b", F32, 2)]),
    ),
)


@pytest.mark.parametrize("source", [loop(condition="goes", more=ENDS), loop(more=NESTED)])
def test_conditional_or_branching_loops_stay(source: OnnxModel) -> None:
    assert any(unrolled(source).graph.of_op("Loop"))
