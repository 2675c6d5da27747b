"""Patterns: what they match, and the node and words of a miss."""

from __future__ import annotations

import openvino
import pytest
from openvino import opset13 as ops

from graphpass.analysis.pattern import Match, look_through, op, var
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.graph import Graph, Node
from graphpass.ir.miss import Miss, MissError


def graph(*outputs: openvino.Node) -> Graph:
    results = [ops.result(output) for output in outputs]
    found = [*outputs]
    inputs = {}
    while found:
        node = found.pop()
        if node.get_type_name() == "Parameter":
            inputs[node.get_name()] = node
        found += [value.get_node() for value in node.input_values()]
    return OpenVINOModel(openvino.Model(results, list(inputs.values()), "g")).graph


def last(found: Graph) -> Node:
    return found.producer(next(found.of_op("Result")).source())


def parameter() -> openvino.Node:
    return ops.parameter([2, 3], openvino.Type.f32)


def test_a_miss_is_named_in_the_pattern_s_own_words():
    found = graph(ops.exp(ops.tanh(parameter())))
    pattern = op.Exp(op.Sqrt(var(), miss=lambda node: f"no root, but {node.op}"))
    missed = pattern.match(found, last(found))
    assert isinstance(missed, Miss)
    assert (missed.node.op, missed.reason) == ("Tanh", "no root, but Tanh")
    with pytest.raises(MissError, match="no root, but Tanh"):
        pattern.require(found, last(found))


def test_a_miss_after_looking_through_is_at_the_last_node():
    found = graph(ops.exp(ops.convert(ops.squeeze(ops.tanh(ops.parameter([2, 1], openvino.Type.f32)), 1), "f64")))
    missed = op.Exp(look_through(op.Sqrt(var()))).match(found, last(found))
    assert isinstance(missed, Miss)
    assert missed.node.op == "Tanh"


def test_two_patterns_at_one_value():
    found = graph(ops.exp(ops.tanh(parameter())))
    matched = op.Exp(var("inner") & op.Tanh(var("x"))).match(found, last(found))
    assert isinstance(matched, Match)
    assert [found.producer(matched[name]).op for name in ("inner", "x")] == ["Tanh", "Parameter"]
    assert isinstance(op.Exp(op.Tanh(var()) & op.Sqrt(var())).match(found, last(found)), Miss)


def test_variables_of_another_match_stay_bound():
    shared, other = parameter(), parameter()
    found = graph(ops.exp(shared), ops.tanh(shared), ops.sqrt(other))
    first, second, third = (next(found.of_op(kind)) for kind in ("Exp", "Tanh", "Sqrt"))
    given = op.Exp(var("x")).require(found, first)
    assert isinstance(op.Tanh(var("x")).match(found, second, given), Match)
    assert isinstance(op.Sqrt(var("x")).match(found, third, given), Miss)
