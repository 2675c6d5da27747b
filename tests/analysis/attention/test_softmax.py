"""The products of attention around a Softmax, and its sink."""

import pytest

from graphpass.analysis.attention.softmax import (
    dropped_column,
    is_attention,
    is_one_per_head,
    sink_of,
    subtracts_row_maximum,
)
from graphpass.ir.miss import MissError
from graphpass.testing import parse_model

MODEL = """
%q = Parameter : f32[batch, 4, n, 8]
%k = Parameter : f32[batch, 4, 8, m]
%v = Parameter : f32[batch, 4, m, 8]
%sink = Constant : f32[1, 4, 1, 1]
%rows = Parameter : f32[batch, 4, n, 1]
%scores = MatMul(%q, %k)
%shape = ShapeOf(%rows) : i64[4]
%columns = Broadcast(%sink, %shape) : f32[batch, 4, n, 1]
%all = Concat(%scores, %columns) {axis=3}
%shares = Softmax(%all) {axis=3}
%kept = Slice(%shares, [0], [-1]) {axes=[3]}
%y = MatMul(%kept, %v)
Result(%y) {name=y}
"""


def graph_of(*pairs):
    text = MODEL
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return parse_model(text).graph


def the(graph, op):
    (node,) = graph.of_op(op)
    return node


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ([], True),
        ([("%kept, %v", "%v, %kept"), ("[batch, 4, m, 8]", "[batch, 4, 8, n]")], False),
        ([("%v = Parameter", "%v = Constant"), ("[batch, 4, m, 8]", "[1, 4, 6, 8]")], False),
        ([("%k = Parameter", "%k = Constant"), ("[batch, 4, 8, m]", "[1, 4, 8, 6]")], False),
        ([("%kept = Slice(%shares, [0], [-1]) {axes=[3]}", "%kept = Relu(%shares)")], False),
    ],
    ids=["attention", "weights on the right", "constant value", "constant key", "relu"],
)
def test_attention_multiplies_activations_on_both_sides(pairs, found):
    graph = graph_of(*pairs)
    assert is_attention(graph, the(graph, "Softmax")) is found


@pytest.mark.parametrize(("joined", "column"), [("%scores, %columns", "last"), ("%columns, %scores", "first")])
def test_a_sink_is_looked_up_before_its_copies(joined, column):
    graph = graph_of(("%scores, %columns", joined))
    scores, sink, found = sink_of(graph, the(graph, "Concat"))
    assert (graph.producer(scores).op, sink.name, found) == ("MatMul", "sink", column)
    assert is_one_per_head(sink)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("Concat(%rows, %columns) {axis=3}", "does not join its scores and one attention sink"),
        ("Concat(%scores, %columns, %columns) {axis=3}", "does not join its scores and one attention sink"),
        ("Concat(%scores, %scores) {axis=3}", "does not join its scores and one attention sink"),
        ("Concat(%scores, %k) {axis=2}", "not joined along the last of four axes"),
        ("Concat(%scores, %q) {axis=3}", "has more than one column: q"),
    ],
)
def test_other_joins_are_misses(new, words):
    graph = graph_of(("Concat(%scores, %columns) {axis=3}", new))
    with pytest.raises(MissError, match=words):
        sink_of(graph, the(graph, "Concat"))


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("%kept = Slice(%shares, [0], [-1]) {axes=[3]}", "last"),
        ("%kept = Slice(%shares, [1], [9223372036854775807]) {axes=[3]}", "first"),
        ("%kept = Slice(%shares, [0], [-2]) {axes=[3]}", None),
        ("%kept = Slice(%shares, [0], [-1], [2]) {axes=[3]}", None),
        ("%kept = Slice(%shares, [0], [-1]) {axes=[2]}", None),
    ],
)
def test_one_column_is_dropped(line, column):
    graph = graph_of(("%kept = Slice(%shares, [0], [-1]) {axes=[3]}", line))
    node = the(graph, "Slice")
    if column is not None:
        assert dropped_column(graph, node) == (node.outputs[0], column)
        return
    with pytest.raises(MissError, match="exactly the first or last column"):
        dropped_column(graph, node)


@pytest.mark.parametrize(("axes", "keep", "found"), [("[3]", "true", True), ("[2]", "true", False)])
def test_only_the_maximum_of_a_row_leaves_the_softmax_alone(axes, keep, found):
    lines = f"%most = ReduceMax(%all) {{axes={axes}, keep={keep}}}\n%less = Subtract(%all, %most)\n%shares"
    graph = graph_of(("%shares =", f"{lines} ="), ("Softmax(%all)", "Softmax(%less)"))
    assert subtracts_row_maximum(graph, the(graph, "Subtract")) is found
