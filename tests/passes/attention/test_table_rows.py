"""Gathers of whole rows of tables become one form, with the same numbers; other gathers stay."""

import numpy
import pytest

from graphpass.passes.attention.table_rows import gather_rows, is_table
from graphpass.runtime.backends.onnxruntime_request import OnnxRuntimeRequest
from graphpass.testing import parse_model

GIVEN = """%rows = Parameter : i64[2, 3]
%vector = Parameter : i64[3]
%x = Parameter : f32[2, 3, 8]
%table = Constant : f32[9, 8]
"""
FEED = {
    "rows": numpy.array([[1, 4, 2], [0, 8, 3]]),
    "vector": numpy.array([5, 0, 7]),
    "x": numpy.ones([2, 3, 8], numpy.float32),
}


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("%i = Unsqueeze(%rows) {axes=[2]}\n%y = GatherND(%table, %i)", "GatherND"),
        ("%f = Reshape(%rows, [-1])\n%g = Gather(%table, %f) {axis=0}\n%y = Reshape(%g, [2, 3, 8])", "Reshape"),
        ("%g = Gather(%table, %vector) {axis=0}\n%y = Unsqueeze(%g) {axes=[0]}", None),
        ("%g = Gather(%table, %vector) {axis=0}\n%y = Add(%g, %x)", None),
        ("%g = Gather(%table, %vector) {axis=0}\n%c = Convert(%g) {to=f32}\n%y = Add(%c, %x)", None),
        ("%w = ConstantOfShape([2, 9]) {value=[7.0]:f32}\n%y = GatherElements(%w, %rows) {axis=1}", "GatherElements"),
        ("%three = Constant : f32[1, 9, 8]\n%i = Unsqueeze(%vector) {axes=[0, 2]}\n"
         "%j = Tile(%i, [1, 1, 8])\n%y = GatherElements(%three, %j) {axis=1}", "GatherElements"),
    ],
)  # fmt: skip
def test_rows_are_gathered_by_one_operator(text, gone):
    model = parse_model(f"{GIVEN}{text}\nResult(%y) {{name=y}}")
    feed = {name: array for name, array in FEED.items() if name in model.graph.parameters}
    expected = OnnxRuntimeRequest(model.clone(), True).infer(feed)["y"]
    gather_rows(model)
    found = OnnxRuntimeRequest(model, True).infer({name: feed[name] for name in model.graph.parameters})["y"]
    numpy.testing.assert_array_equal(found, expected)
    assert gone is None or not [*model.graph.of_op(gone)]
    assert all((node.source(1).rank or 0) == 2 for node in model.graph.of_op("Gather"))


@pytest.mark.parametrize(
    "text",
    [
        "%i = Unsqueeze(%rows) {axes=[2]}\n%t = Tanh(%x)\n%u = Reshape(%t, [6, 8])\n%y = GatherND(%u, %i)",
        "%y = GatherND(%table, [[0, 1], [2, 3]])",
        "%g = Gather(%table, %vector) {axis=0}\n%y = Unsqueeze(%g) {axes=[1]}",
        "%g = Gather(%table, %vector) {axis=0}\n%y = Tanh(%g)",
        "%f = Reshape(%rows, [-1])\n%g = Gather(%table, %f) {axis=0}\n%y = Reshape(%g, [3, 2, 8])",
        "%mixed = Constant : f32[2, 9]\n%y = GatherElements(%mixed, %rows) {axis=1}",
    ],
)
def test_other_gathers_stay(text):
    model = parse_model(f"{GIVEN}{text}\nResult(%y) {{name=y}}")
    before = [node.op for node in model.graph.nodes]
    gather_rows(model)
    assert [node.op for node in model.graph.nodes] == before


@pytest.mark.parametrize(
    ("text", "table"),
    [("%t = Constant : f32[2, 3]", True), ("%w = Constant : f16[2, 3]\n%t = Convert(%w) {to=f32}", True),
     ("%t = Constant : f32[2, 3, 4]", False), ("%w = Constant : f32[2, 3]\n%t = Tanh(%w)", False)],
)  # fmt: skip
def test_tables_are_constant_matrices(text, table):
    graph = parse_model(f"{text}\n%y = Identity(%t)\nResult(%y) {{name=y}}").graph
    assert is_table(graph, graph.writes["y"].source()) == table
    assert not is_table(graph, None)
