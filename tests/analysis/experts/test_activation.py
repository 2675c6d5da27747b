"""Activations between the products of an expert, by sample points."""

import pytest

from graphpass.analysis.experts.activation import Activation, Function, name_activation
from graphpass.ir.miss import MissError
from graphpass.testing import parse_model

ONE = {
    "relu": "%y = Relu(%a)",
    "silu": "%s = Sigmoid(%a)\n%y = Multiply(%a, %s)",
    "identity": "%y = Add(%a, 0.0)",
    "gelu": """%c = Power(%a, 3.0)
%d = Multiply(%c, 0.044715)
%e = Add(%a, %d)
%f = Multiply(%e, 0.7978845608)
%g = Tanh(%f)
%h = Add(%g, 1.0)
%i = Multiply(%a, 0.5)
%y = Multiply(%i, %h)""",
    None: "%s = Sigmoid(%a)\n%y = Multiply(%s, 2.0)",
}

GATED = """%low = Minimum({gate}, 7.0)
%scaled = Multiply(%low, 1.702)
%open = Sigmoid(%scaled)
%gated = Multiply(%low, %open)
%most = Minimum({up}, 7.0)
%both = Maximum(%most, -7.0)
%more = Add(%both, 1.0)
%y = Multiply(%gated, %more)"""


def function_of(text):
    names = ("a", "b") if "%b" in text else ("a",)
    inputs = "".join(f"%{name} = Parameter : f32[n, 4]\n" for name in names)
    graph = parse_model(f"{inputs}{text}\nResult(%y) {{name=y}}", "openvino").graph
    nodes = tuple(node for node in graph.nodes if node.op not in {"Parameter", "Constant", "Result"})
    leaves = tuple(frozenset([graph.parameters[name]]) for name in names)
    return graph, Function(graph.writes["y"].source(), nodes, leaves)


@pytest.mark.parametrize("kind", [kind for kind in ONE if kind is not None])
def test_activations_of_one_product_have_a_name(kind):
    assert name_activation(*function_of(ONE[kind])) == (Activation(kind), (0,))


@pytest.mark.parametrize(("gate", "up", "order"), [("%a", "%b", (0, 1)), ("%b", "%a", (1, 0))])
def test_parameters_and_order_of_swiglu_are_solved(gate, up, order):
    found, places = name_activation(*function_of(GATED.format(gate=gate, up=up)))
    assert places == order
    assert (found.kind, found.beta, found.limit) == ("swiglu", 1.0, 7.0)
    assert found.alpha == pytest.approx(1.702, abs=1e-6)


def test_swiglu_without_a_limit():
    text = "%s = Sigmoid(%a)\n%g = Multiply(%a, %s)\n%y = Multiply(%g, %b)"
    assert name_activation(*function_of(text)) == (Activation("swiglu"), (0, 1))


@pytest.mark.parametrize(
    "text",
    [
        ONE[None],
        GATED.format(gate="%a", up="%b").replace("Maximum(%most, -7.0)", "Maximum(%most, -6.0)"),
        "%s = Tanh(%a)\n%y = Multiply(%s, %b)",
    ],
)
def test_other_functions_are_misses(text):
    with pytest.raises(MissError, match="is not an activation of MoE"):
        name_activation(*function_of(text))


def test_equal_functions_have_one_form():
    forms = [function.form(graph) for graph, function in map(function_of, (ONE["gelu"], ONE["gelu"]))]
    assert forms[0] == forms[1]
    graph, other = function_of(ONE["gelu"].replace("0.5", "0.6"))
    assert other.form(graph) != forms[0]
