"""Collected changes of a graph's edges: sources, uses and living nodes after them."""

from graphpass.passes.shapes.rewiring import Rewiring
from graphpass.testing import parse_model

GRAPH = parse_model("""%x = Parameter : f32[4]
%a = Relu(%x)
%b = Tanh(%a)
%c = Add(%b, %a)
Result(%c) {name=y}
Result(%b) {name=z}""").graph
NODES = {node.name: node for node in GRAPH.nodes}
A, B, C, X = (NODES[name].outputs[0] for name in "abcx")


def names(nodes):
    return [node.name for node in nodes]


def test_an_unchanged_graph_has_its_own_edges():
    rewiring = Rewiring(GRAPH)
    assert rewiring.source(NODES["c"], 1) == A
    assert sorted(use.node.name for use in rewiring.uses(A)) == ["b", "c"]
    assert names(rewiring.living()) == names(GRAPH.nodes)
    assert list(rewiring.changed()) == []


def test_one_use_is_moved():
    rewiring = Rewiring(GRAPH)
    (use,) = (use for use in GRAPH.uses(A) if use.node.name == "c")
    rewiring.move(use, X)
    assert rewiring.source(NODES["c"], 1) == X
    assert names(use.node for use in rewiring.uses(A)) == ["b"]
    assert sorted(use.node.name for use in rewiring.uses(X)) == ["a", "c"]
    assert [(node.name, port, value.name) for node, port, value in rewiring.changed()] == [("c", 1, "x")]
    rewiring.move(use, B)
    assert sorted(names(use.node for use in rewiring.uses(X))) == ["a"]


def test_outputs_keep_their_value():
    rewiring = Rewiring(GRAPH)
    assert rewiring.redirect(B, X) == 1
    assert rewiring.source(NODES["c"]) == X
    assert [use.node.op for use in rewiring.uses(B)] == ["Result"]


def test_nodes_without_users_are_not_alive_and_their_changes_are_dropped():
    text = "%x = Parameter : f32[4]\n%a = Relu(%x)\n%b = Tanh(%a)\n%c = Add(%b, %x)\nResult(%c) {name=y}"
    graph = parse_model(text).graph
    nodes = {node.name: node for node in graph.nodes}
    rewiring = Rewiring(graph)
    (use,) = graph.uses(nodes["a"].outputs[0])
    rewiring.move(use, nodes["x"].outputs[0])
    assert names(rewiring.living()) == ["x", "b", "c", "y"]
    rewiring.redirect(nodes["b"].outputs[0], nodes["x"].outputs[0])
    assert [(node.name, port) for node, port, _ in rewiring.changed()] == [("c", 0)]
