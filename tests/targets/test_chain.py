"""The chain from a variable to attention that OpenVINO's plugins fuse, and where others break."""

import pytest

from graphpass.ir.miss import MissError
from graphpass.targets.chain import data_uses, trace_operand
from graphpass.testing import parse_model

MODEL = """%beams = Parameter : i32[b]
%input = Parameter : f32[b, 2, p, 4]
%new = Parameter : f32[b, 2, n, 4]
%past = ReadValue {{variable=k}} : f32[b, 2, p, 4]
%own = {own}
%keys = {keys}
%key = {key}
Assign(%keys) {{variable=k}}
Result(%key) {{name=key}}"""
FORM = {"own": "Gather(%past, %beams, 0)", "keys": "Concat(%own, %new) {axis=2}", "key": "Convert(%keys) {to=f32}"}


def traced(**changed):
    graph = parse_model(MODEL.format(**FORM | changed), "openvino").graph
    return graph, trace_operand(graph, graph.writes["key"].source())


def test_the_parts_of_a_chain():
    graph, chain = traced(key="Transpose(%keys, [0, 2, 1, 3])")
    assert (chain.read.op, chain.gather.name, chain.index.name, chain.concat.name) == (
        "ReadValue",
        "own",
        "beams",
        "keys",
    )
    assert [node.op for node in chain.layout] == ["Transpose"]
    assert not chain.converts
    assert sorted(node.op for node in data_uses(graph, chain.concat.outputs[0])) == ["Assign", "Transpose"]


def test_shapes_are_no_uses_of_data():
    text = MODEL.format(**FORM | {"key": "ShapeOf(%keys)"})
    graph = parse_model(text, "openvino").graph
    (concat,) = graph.of_op("Concat")
    assert [node.op for node in data_uses(graph, concat.outputs[0])] == ["Assign"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"key": "Tile(%keys, [1, 2, 1, 1])"}, "expected a Concat of past and new positions, got Tile"),
        ({"key": "Relu(%new)"}, "expected a Concat of past and new positions, got Relu"),
        ({"keys": "Concat(%own, %new, %new) {axis=2}"}, "joins 3 tensors"),
        ({"keys": "Concat(%past, %new) {axis=2}"}, "no Gather reorders the variable by beams"),
        ({"own": "Gather(%input, %beams, 0)"}, "the past is an input of the model, not a variable"),
        ({"keys": "Concat(%input, %new) {axis=2}"}, "the past is an input of the model, not a variable"),
        ({"own": "Relu(%past)"}, "expected a Gather between the variable and the Concat, got Relu"),
        ({"own": "Gather(%more, %beams, 0)"}, "expected a ReadValue or Convert before the Gather, got Relu"),
    ],
)
def test_the_first_node_that_breaks_the_chain(changed, reason):
    form = FORM | {"key": "Transpose(%keys, [0, 1, 2, 3])"} | changed
    model = MODEL.format(**form).replace("%own =", "%more = Relu(%past)\n%own =")
    graph = parse_model(model, "openvino").graph
    with pytest.raises(MissError, match=reason):
        trace_operand(graph, graph.writes["key"].source())
