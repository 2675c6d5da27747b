"""Copy some nodes of a model: those alone, and the model stays as it was."""

from __future__ import annotations

import pytest
from support.loaded import exported

from graphpass.verify import compare

#: Caches as inputs and as variables, and a Loop with a body.
PLACES = ["llama/onnx", "llama/ov-stateful", pytest.param("granitemoehybrid/ov-stateful", marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_an_excerpt_of_all_nodes_is_a_copy(place):
    model = exported(place)
    before = model.digest()
    copy, twins = model.excerpt(model.graph.nodes)
    assert model.digest() == before
    assert copy.declarations == model.declarations
    assert {node.op for node in model.graph.nodes if node.index not in twins} <= {"Constant"}
    assert compare(model, copy, steps=1).passed


@pytest.mark.parametrize("place", PLACES)
def test_values_from_outside_become_inputs_of_an_excerpt(place):
    model = exported(place)
    before = model.digest()
    wanted = [node for node in model.graph.nodes if "layers.1" in node.name]
    kept = {node.index for node in wanted}
    kept |= {value.node for node in wanted for value in node.inputs if value and is_constant(model, value)}
    nodes = [model.graph.nodes[index] for index in sorted(kept)]
    copy, twins = model.excerpt(nodes)
    assert model.digest() == before
    graph = copy.graph
    for node in nodes:
        twin = graph.nodes[twins[node.index]]
        assert (twin.op, twin.name) == (node.op, node.name)
        for value, other in zip(node.inputs, twin.inputs, strict=True):
            is_inside = value is None or value.node in kept
            assert is_inside or graph.producer(other).op == "Parameter"
    others = len(list(graph.of_op("Parameter", "Result")))
    assert len(graph.nodes) <= len(nodes) + others < len(model.graph.nodes)


def is_constant(model, value):
    return model.graph.producer(value).op == "Constant"
