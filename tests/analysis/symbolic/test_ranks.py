"""Ranks of outputs that a graph does not declare equal those of shape inference."""

from dataclasses import replace

import pytest

from graphpass.analysis.symbolic.ranks import with_rank, with_ranks
from graphpass.testing import parse_model

GIVEN = """%x = Parameter : f32[2, 3, 4]
%i = Parameter : i64[5, 6]
%s = Parameter : i64[4]
"""


def rank_of(text, known):
    """Return the rank that is inferred for ``y``, and the right one."""
    graph = parse_model(f"{GIVEN}{text}\nResult(%y) {{name=y}} ").graph
    value = graph.writes["y"].source()
    node, open_value = graph.producer(value), replace(value, shape=None)
    inputs = tuple(source and replace(source, shape=None) for source in node.inputs)
    node = replace(node, inputs=inputs, outputs=(open_value,))
    ranks = {source.name: source.rank for source in graph.producer(value).sources}
    sizes = {source.name: source.shape for source in graph.producer(value).sources}

    def count(source):
        shape = sizes[source.name]
        return shape[0] if known and len(shape) == 1 else None

    found = with_ranks(node, open_value, lambda source: ranks[source.name], count)
    return found and found[1].rank, value.rank


@pytest.mark.parametrize(
    "text",
    [
        "%y = Add(%x, 1.0)",
        "%t = Transpose(%x) {order=[0, 2, 1]}\n%y = MatMul(%x, %t)",
        "%y = Gather(%x, %i) {axis=1}",
        "%y = Gather(%x, 0) {axis=1}",
        "%y = Transpose(%x) {order=[2, 0, 1]}",
        "%y = Flatten(%x) {axis=2}",
        "%y = Unsqueeze(%x) {axes=[0, 1]}",
        "%u = Unsqueeze(%x) {axes=[0]}\n%y = Squeeze(%u) {axes=[0]}",
        "%y = ReduceSum(%x) {axes=[0, 1]}",
        "%y = ReduceSum(%x) {axes=[0, 1], keep=true}",
        "%y = Softmax(%x) {axis=2}",
        "%y = Reshape(%x, [2, 2, 3, 2])",
        "%y = Broadcast(%x, [1, 2, 3, 4])",
    ],
)
def test_ranks_are_those_of_the_operator(text):
    found, expected = rank_of(text, known=True)
    assert found == expected


@pytest.mark.parametrize("text", ["%y = Reshape(%x, %s) : f32[1, 2, 3, 4]", "%y = Broadcast(%x, %s) : f32[1, 2, 3, 4]"])
def test_targets_of_unknown_length_leave_the_rank_open(text):
    assert rank_of(text, known=True)[0] == 4
    assert rank_of(text, known=False)[0] is None


def test_a_declared_rank_is_kept():
    graph = parse_model(f"{GIVEN}%y = Relu(%x)\nResult(%y) {{name=y}}").graph
    value = graph.writes["y"].source()
    unknown = replace(graph.producer(value), op="Unknown")
    assert with_rank(unknown, value, lambda _: None)[1] == value
    assert with_rank(unknown, replace(value, shape=None), lambda _: None) is None
