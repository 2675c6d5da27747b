"""Factors of scores, on operands and in a soft cap."""

import pytest

from graphpass.analysis.attention.scales import Scaling, operand_factors, scaling_of
from graphpass.testing import parse_model


@pytest.mark.parametrize(
    ("factors", "softcap", "scaling"),
    [
        ([], None, Scaling(1.0)),
        ([0.5], None, Scaling(0.5)),
        ([0.5, 1.0, 0.25], 30.0, Scaling(0.125, (0.5, 0.25), 30.0)),
        ([0.5, None], 30.0, Scaling(None, (), 30.0)),
        ([0.35355339], None, Scaling(0.353553)),
    ],
)
def test_the_scale_is_the_product_of_factors(factors, softcap, scaling):
    assert scaling_of(factors, softcap) == scaling


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("%y = Multiply(%x, 0.5)", [0.5]),
        ("%y = Divide(%x, 4.0)", [0.25]),
        ("%a = Multiply(%x, 0.5)\n%b = Transpose(%a) {order=[0, 2, 1]}\n%y = Multiply(%b, 0.25)", [0.25, 0.5]),
        ("%a = Multiply(%x, 0.5)\n%b = Convert(%a) {to=f16}\n%y = Convert(%b) {to=f32}", [0.5]),
        ("%a = Multiply(%x, 0.5)\n%y = Add(%a, [1.0, 2.0, 3.0, 4.0])", [0.5]),
        ("%a = Multiply(%x, 0.5)\n%y = Add(%a, %x)", []),
        ("%a = Multiply(%x, 0.5)\n%y = Tanh(%a)", []),
        ("%y = Multiply(%x, %s)", [None]),
        ("%a = Multiply(%x, %s)\n%y = Transpose(%a) {order=[0, 2, 1]}", []),
        ("%i = Convert(%stored) {to=f32}\n%y = Multiply(%i, 0.5)", []),
    ],
)
def test_factors_of_an_operand_end_at_its_computation(text, factors):
    inputs = "%x = Parameter : f32[b, n, 4]\n%s = Parameter : f32[]\n%stored = Parameter : u8[b, n, 4]"
    graph = parse_model(f"{inputs}\n{text}\nResult(%y) {{name=y}}", "openvino").graph
    assert operand_factors(graph, graph.writes["y"].source()) == factors
