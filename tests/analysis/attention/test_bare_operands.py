"""Query, key and value without scales, axis swaps, idle conversions and merged heads."""

import pytest

from graphpass.analysis.attention.bare_operands import bare_operands, scale_of
from graphpass.ir.miss import MissError
from graphpass.testing import parse_model

GIVEN = """%q = Parameter : f32[b, 2, n, 4]
%k = Parameter : f32[b, 2, m, 4]
%one = Parameter : f32[1]
%row = Parameter : f32[4]
"""
PRODUCTS = """
%s = MatMul({q}, {k})
%w = Softmax(%s) {{axis=-1}}
%y = MatMul(%w, {v})
Result(%y) {{name=y}}"""
TURNED = "%t = Transpose(%k) {order=[0, 1, 3, 2]}\n"


def operands_of(text, q="%q", k="%t", v="%k", **options):
    graph = parse_model(GIVEN + text + PRODUCTS.format(q=q, k=k, v=v)).graph
    products = sorted(graph.of_op("MatMul"), key=lambda node: node.index)
    return graph, bare_operands(graph, *products[-2:], **options)


@pytest.mark.parametrize(
    ("text", "given", "scales"),
    [
        (TURNED, {}, [(), ()]),
        (TURNED + "%a = Multiply(%q, 0.5)", {"q": "%a"}, [(0.5,), ()]),
        (TURNED + "%a = Divide(%q, 4.0)", {"q": "%a"}, [(0.25,), ()]),
        (TURNED + "%a = Multiply(0.5, %t)\n%c = Multiply(%a, 0.5)", {"k": "%c"}, [(), (0.5, 0.5)]),
        ("%a = Multiply(%k, 2.0)\n%t = Transpose(%a) {order=[0, 1, 3, 2]}", {}, [(), (2.0,)]),
        (TURNED + "%a = Identity(%q)", {"q": "%a"}, [(), ()]),
    ],
)
def test_scales_and_swaps_are_taken_off(text, given, scales):
    graph, (query, key, value) = operands_of(text, **given)
    assert [operand.value.name for operand in (query, key, value)] == ["q", "k", "k"]
    assert (query.swapped, key.swapped, value.swapped) == (False, True, False)
    assert [tuple(scale.factor(graph) for scale in operand.scales) for operand in (query, key)] == scales


def test_forms_lead_from_the_operand_to_the_product():
    _, (_, key, _) = operands_of("%a = Multiply(%k, 2.0)\n%t = Transpose(%a) {order=[0, 1, 3, 2]}")
    assert [value.name for value in key.forms] == ["a", "t"]


def test_values_keep_their_scale():
    _, (_, _, value) = operands_of(TURNED + "%a = Multiply(%k, 2.0)", v="%a")
    assert value.value.name == "a"
    assert not value.scales


MERGED = """%q3 = Reshape(%q, [-1, 3, 4])
%k3 = Reshape(%k, [-1, 5, 4])
%t = Transpose(%k3) {order=[0, 2, 1]}"""


def test_merged_heads_are_separated():
    _, operands = operands_of(MERGED, q="%q3", v="%k3")
    assert [operand.value.name for operand in operands] == ["q", "k", "k"]
    assert operands[1].swapped


@pytest.mark.parametrize(
    ("text", "given", "reason"),
    [
        (MERGED.replace("Reshape(%q, [-1, 3, 4])", "Parameter : f32[c, n, 4]"), {"q": "%q3", "v": "%k3"},
         "is not a Reshape of 4 dimensions"),
        ("%q3 = Reshape(%q, [-1, 8, 3])\n%k3 = Reshape(%k, [-1, 3, 8])\n%t = Transpose(%k3) {order=[0, 2, 1]}",
         {"q": "%q3", "k": "%k3", "v": "%q3"}, "cannot determine how Reshape merges"),
        ("%q5 = Unsqueeze(%q) {axes=[0]}\n" + TURNED, {"q": "%q5"}, "its query q5 has 5 dimensions, not 4"),
    ],
)  # fmt: skip
def test_other_operands_are_refused(text, given, reason):
    with pytest.raises(MissError, match=reason):
        operands_of(text, **given)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("%y = Multiply(%q, %one)", ("q", "one", False)),
        ("%y = Multiply(%one, %q)", ("q", "one", False)),
        ("%y = Divide(%q, %one)", ("q", "one", True)),
        ("%y = Divide(%one, %q)", None),
        ("%y = Multiply(%q, %row)", None),
    ],
)
def test_the_operand_of_one_element_is_the_scale(text, found):
    graph = parse_model(f"{GIVEN}{text}\nResult(%y) {{name=y}}").graph
    scaled = scale_of(graph, graph.producer(graph.writes["y"].source()))
    assert (scaled and (scaled[0].name, scaled[1].name, scaled[1].divides)) == found
