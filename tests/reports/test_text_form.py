"""The text of a model, a layer, or the neighborhood of a node."""

import pytest

from graphpass.errors import UsageError
from graphpass.reports.text_form import in_text_form
from graphpass.testing import Family, parse_model, tiny_model

CHAIN = parse_model("""%x = Parameter : f32[4]
%one/a = Relu(%x)
%one/b = Tanh(%one/a)
%two/a = Add(%one/b, 1.0)
%last = Abs(%two/a)
%side = Exp(%one/b)
Result(%last) {name=y}
Result(%side) {name=z}""")
LLAMA = tiny_model("llama", layers=3)


def kinds(model, **options):
    return [statement.kind for statement in in_text_form(model, **options) if statement.kind != "Parameter"]


@pytest.mark.parametrize(
    ("around", "distance", "found"),
    [
        ("one/b", 0, ["Tanh"]),
        ("one/b", 1, ["Relu", "Tanh", "Add", "Exp"]),
        ("last", 1, ["Add", "Abs", "Result"]),
        ("last", 2, ["Tanh", "Add", "Abs", "Result"]),
        ("side", 2, ["Relu", "Tanh", "Add", "Exp", "Result"]),
    ],
)
def test_the_neighborhood_of_a_node(around, distance, found):
    assert kinds(CHAIN, around=around, distance=distance) == found


@pytest.mark.parametrize(
    ("around", "reason", "hint"),
    [
        ("/a", "2 nodes have names that end with '/a'", "give more of the name"),
        ("one/c", "no node has a name that ends with", "did you mean one/"),
        ("?????", "no node has a name that ends with", "graphpass print MODEL lists the nodes"),
    ],
)
def test_names_of_no_or_several_nodes(around, reason, hint):
    with pytest.raises(UsageError, match=f"GP271: {reason}") as raised:
        in_text_form(CHAIN, around=around)
    assert hint in raised.value.hint


def test_layers_have_their_own_nodes_and_caches():
    layers = [in_text_form(LLAMA, layer=layer) for layer in range(3)]
    assert kinds(LLAMA, layer=0) == kinds(LLAMA, layer=1)
    assert [kinds(LLAMA, layer=layer).count("Softmax") for layer in range(3)] == [1, 1, 1]
    caches = [sorted(each.attributes["name"] for each in layer if each.kind == "Result") for layer in layers]
    assert {"present.1.key", "present.1.value"} <= set(caches[1])
    assert not {"present.0.key", "present.2.key"} & set(caches[1])


def test_a_layer_and_a_neighborhood_are_intersected():
    near = kinds(LLAMA, around="L1.softmax", distance=30)
    both = kinds(LLAMA, around="L1.softmax", distance=30, layer=1)
    assert 1 < len(both) < len(near)
    assert kinds(LLAMA, around="L0.softmax", distance=1, layer=1) == []


def test_masks_of_attention_are_comments():
    model = tiny_model(Family(window=5, every_window=True), layers=1)
    (remark,) = [
        remark for statement in in_text_form(model) if statement.kind == "Softmax" for remark in statement.remarks
    ]
    assert remark == "attends to k if (k <= past + q and past + q <= 4 + k and attention_mask[b, k])"


@pytest.mark.parametrize(
    ("model", "reason"), [(LLAMA, "layer 3 has no caches"), (CHAIN, "cannot determine the layers of the model")]
)
def test_layers_that_do_not_exist(model, reason):
    with pytest.raises(UsageError, match=f"GP272: {reason}"):
        in_text_form(model, layer=3)
