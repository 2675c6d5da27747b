"""Values on every path from tokens to logits, and the pieces between them."""

import pytest

from graphpass.analysis.caches.chain import computed_between, find_chain, is_after_sum, is_sum, is_weight
from graphpass.testing import parse_model, tiny_model

MODEL = """%input_ids = Parameter : i64[b, n]
%words = Constant : f32[9, 8]
%w = Constant : f32[8, 8]
%small = Constant : f32[8]
%x = Gather(%words, %input_ids) {axis=0}
%a = MatMul(%x, %w)
%r = Relu(%a)
%b = Add(%a, %r)
%c = Tanh(%b)
%d = Multiply(%c, %small)
Result(%d) {name=logits}
Result(%c) {name=other}"""


def chain_of(text=MODEL):
    return find_chain(parse_model(text))


def test_values_beside_a_branch_are_not_on_every_path():
    chain = chain_of()
    assert [value.name for value in chain.values] == ["x", "a", "b", "other", "logits"]
    assert chain.cuts == chain.values
    assert (chain.tokens.name, chain.logits.name, chain.caches) == ("input_ids", "logits", ())


def test_weights_belong_to_the_first_piece_that_reads_them():
    chain = chain_of()
    graph = chain.graph
    found = {graph.nodes[index].name: piece for index, piece in chain.weights.items()}
    assert found == {"words": 0, "w": 1}
    assert not is_weight(next(node for node in graph.of_op("Constant") if node.name == "small"))


def test_caches_are_in_the_pieces_of_their_layer():
    chain = find_chain(tiny_model("llama", layers=3))
    homes = [chain.homes[f"past.{layer}.key"] for layer in range(3)]
    assert homes == sorted(homes)
    assert len(set(homes)) == 3
    assert homes == [chain.homes[f"past.{layer}.value"] for layer in range(3)]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("input_ids", "places", "it has no input called input_ids"),
        ("{name=logits}", "{name=scores}", "no output is called logits"),
        ("Result(%d)", "%s = ShapeOf(%d)\nResult(%s)", "no value is on all paths"),
    ],
)
def test_models_without_such_values(old, new, reason):
    assert reason in chain_of(MODEL.replace(old, new))


def test_shapes_are_no_path():
    text = MODEL.replace("%c = Tanh(%b)", "%s = ShapeOf(%b)\n%t = Broadcast(%w1, %s)\n%c = Add(%b, %t)")
    graph = parse_model(text.replace("%small =", "%w1 = Constant : f32[8]\n%small =")).graph
    names = {
        graph.nodes[index].name
        for index in computed_between(graph, graph.parameters["input_ids"], graph.writes["logits"])
    }
    assert {"x", "a", "r", "b", "c", "d", "logits"} == names


def test_norms_that_return_a_sum():
    norm = "%c, %m, %v, %sum = com.microsoft.SkipSimplifiedLayerNormalization(%b, %a, %small) {epsilon=0.001}"
    text = MODEL.replace("%c = Tanh(%b)", f"{norm} : f32[b, n, 8], f32[1], f32[1], f32[b, n, 8]")
    graph = parse_model(text).graph
    (norm,) = graph.of_op("SkipSimplifiedLayerNormalization")
    assert [is_sum(graph, value) for value in norm.outputs] == [False, False, False, True]
    assert [is_after_sum(norm, port) for port in range(3)] == [False, False, True]
    assert not is_after_sum(graph.producer(graph.writes["logits"].source()), 2)
