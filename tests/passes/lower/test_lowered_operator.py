"""An operator to lower: its attributes, inputs and outputs, in the graph and in bodies."""

import pytest

from graphpass.passes.lower.lowered_operator import LoweredOperator
from graphpass.testing import parse_model

TEXT = """%x = Parameter : f32[n, 1, 8]
%w = Constant : f32[8, 1, 4]
%y, %present = com.microsoft.CausalConvWithState(%x, %w, _, _) {channels_last=1}
%z = Relu(%y)
Result(%z) {name=z}"""


@pytest.fixture
def operator():
    model = parse_model(TEXT)
    rewriter = model.rewriter()
    (node,) = model.graph.of_op("CausalConvWithState")
    made = LoweredOperator(rewriter, rewriter.node(node), node, rewriter.under(node.name), {})
    return model, rewriter, made


def test_attributes_and_inputs(operator):
    _, _, made = operator
    assert (made.attribute("channels_last"), made.attribute("activation", "none")) == (1, "none")
    assert made.read(0).name == "x"
    assert [made.read(port) for port in (2, 7)] == [None, None]
    assert made.value(0).shape == ("n", 1, 8)
    assert made.value(7) is None
    assert (made.size(0, -1), made.size(0, 0), made.size(7, 0)) == (8, "n", None)


def test_operators_in_bodies_have_no_shapes(operator):
    _, rewriter, made = operator
    inside = LoweredOperator(rewriter, made.native, None, made.write, {})
    assert (inside.value(0), inside.size(0, 0), inside.read(0).name) == (None, None, "x")


def test_shared_tensors_are_written_once(operator):
    _, _, made = operator
    calls = []
    first = made.once("key", lambda: calls.append(1) or made.write.constant([1]))
    assert made.once("key", lambda: calls.append(1)) is first
    assert calls == [1]


def test_omitted_outputs_are_ignored(operator):
    model, rewriter, made = operator
    made.replace(0, made.write.op("Relu", made.read(0)))
    made.replace(5, made.write.op("Relu", made.read(0)))
    rewriter.finish()
    assert [node.op for node in model.graph.nodes if node.op not in {"Constant", "Parameter", "Result"}] == ["Relu"] * 2


def test_refusals_name_the_operator(operator):
    _, _, made = operator
    error = made.refusal("its activation is gelu", "export it again")
    assert (error.id, error.hint) == ("GP341", "export it again")
    assert error.message == f"CausalConvWithState {made.name} cannot be lowered: its activation is gelu"
