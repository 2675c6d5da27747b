"""Loops over the tokens of a step, evaluated on random inputs beside ONNX Runtime."""

from __future__ import annotations

import numpy
import onnxruntime
import pytest
from dialects.onnx.looping_models import loop, scan
from onnx import helper
from support.linear_attention import build

from graphpass.analysis.equations.token_loops import BATCH, LoopNumbers, ends_early, find_loops
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.bodies import inlined
from graphpass.ir.miss import MissError
from graphpass.testing import run


def numbers_of(model):
    (found,) = find_loops(model)
    return found, LoopNumbers(found, inlined(model).analysis(infer_sizes))


def test_activations_and_states_of_a_loop_are_found():
    found, numbers = numbers_of(run(build("gated_delta"), "lower-operators"))
    assert not found.is_nested
    assert {node.op for node in found.exits} <= {"Final", "Stacked"}
    assert len([node for node in found.exits if node.op == "Final" and node.outputs[0].rank == 4]) == 1
    assert len(found.sources) >= 5
    assert numbers.fixed_length is None


@pytest.mark.parametrize("source", [loop(), scan(0)])
def test_iterations_compute_what_the_runtime_does(source):
    found, numbers = numbers_of(source)
    assert numbers.fixed_length == 3
    made = numbers.run(3)
    assert len(made.tokens) == 3
    (start,) = made.starts.values()
    feeds = {"start": start, "rows": next(iter(made.sources.values()), numpy.zeros((2, 3), numpy.float32))}
    session = onnxruntime.InferenceSession(source.proto.SerializeToString())
    expected = session.run(None, {port.name: feeds[port.name] for port in session.get_inputs()})
    for node, wanted in zip(found.exits, expected, strict=True):
        numpy.testing.assert_allclose(made.results[node.outputs[0]], wanted, rtol=1e-6)


def test_lengths_of_a_dynamic_loop_are_chosen():
    _, numbers = numbers_of(run(build("delta"), "lower-operators"))
    for length in (1, 4):
        made = numbers.run(length)
        assert (made.length, len(made.tokens)) == (length, length)
        assert {array.shape[0] for array in made.starts.values()} == {BATCH}


def test_loops_in_reverse_order_are_a_miss():
    with pytest.raises(MissError, match="does not process the tokens in order"):
        numbers_of(scan(1))


CONDITION = (
    helper.make_node("ReduceMax", ["next"], ["largest"], keepdims=0),
    helper.make_node("Greater", ["largest", "half"], ["goes"]),
)


@pytest.mark.parametrize(("source", "early"), [(loop(), False), (loop(condition="goes", more=CONDITION), True)])
def test_loops_that_a_condition_may_end(source, early):
    (iteration,) = inlined(source).graph.of_op("Iteration")
    assert ends_early(inlined(source).graph, iteration) is early
    if early:
        with pytest.raises(MissError, match="may end before its last iteration"):
            numbers_of(source)
