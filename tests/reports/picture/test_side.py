"""One model of a picture: operators by layer, and layers of equal structure."""

import pytest

from graphpass.reports.picture.highlights import Highlight
from graphpass.reports.picture.side import AFTER, Side
from graphpass.testing import tiny_model


@pytest.fixture(scope="module")
def side():
    return Side(tiny_model("llama", layers=3), {}, {})


def test_operators_are_members_of_one_segment(side):
    indices = [node.index for nodes in side.members.values() for node in nodes]
    assert len(indices) == len(set(indices))
    assert set(side.members) >= {0, 1, 2, AFTER}
    assert not any(node.op == "Constant" for nodes in side.members.values() for node in nodes)
    assert any(node.name == "logits" for node in side.members[AFTER])


def test_layers_of_equal_structure_are_alike(side):
    assert side.likeness(1) == side.likeness(2)
    assert side.likeness(1) != side.likeness(AFTER)
    windows = Side(tiny_model("gemma2", layers=4), {}, {})
    assert windows.likeness(1) == windows.likeness(3) != windows.likeness(2)


def test_a_highlight_makes_a_layer_another():
    model = tiny_model("llama", layers=3)
    marked = Side(model, {"L2.mlp.up": Highlight("changed", facets={"kind": "b"})}, {})
    statuses = {marked.marks[node.index].status for node in marked.members[2]}
    assert statuses == {"same", "changed"}
    assert marked.likeness(1) != marked.likeness(2)


def test_segments_are_described_once_with_all_names(side):
    first = side.ordered(1, {})
    described = side.describe([1, 2], first)
    assert len(described["nodes"]) == len(first)
    assert len(described["names"]) == 2
    assert [
        name.replace("L1", "L2").replace("past.1", "past.2").replace("present.1", "present.2")
        for name in described["names"][0]
    ] == described["names"][1]
    assert len(described["names"][0]) == len(first) + len(described["weights"])
    assert "the layer's input" in [read for node in described["nodes"] for read in node[4]]


def test_order_follows_the_other_model(side):
    nodes = side.ordered(1, {})
    keys = [side.key(node.index) for node in nodes]
    assert len(set(keys)) == len(keys)
    backward = {key: place for place, key in enumerate(reversed(keys))}
    assert sorted(side.key(node.index) for node in side.ordered(1, backward)) == sorted(keys)
    assert [side.key(node.index) for node in side.ordered(1, {key: place for place, key in enumerate(keys)})] == keys
