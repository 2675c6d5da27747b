"""Removal of nodes without users."""

from __future__ import annotations

from graphpass.testing import parse_model

MODEL = """
%x = Parameter : f32[batch, 4]
%inner = Relu(%x) : f32[batch, 4]
%kept = Tanh(%inner)
%y = Relu(%inner) : f32[batch, 4]
Result(%kept) {name=kept}
Result(%y) {name=y}
"""


def test_only_operators_without_users_are_removed():
    model = parse_model(MODEL)
    *_, last = model.graph.of_op("Relu")
    rewriter = model.rewriter()
    rewriter.replace(last.outputs[0], rewriter.op("Sigmoid", model.graph.parameters["x"], name="new"))
    assert rewriter.finish()
    operators = [node.op for node in model.graph.nodes if node.op not in {"Parameter", "Result"}]
    assert sorted(operators) == ["Relu", "Sigmoid", "Tanh"]
    assert [port.name for port in model.outputs] == ["kept", "y"]
