"""Data of pictures: complete, folded, aligned, and linear in the model."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from support.loaded import exported
from support.models import export
from support.quick_cases import model_files, quick_files
from support.scale import scaled

import graphpass
from graphpass.reports.diff import diff_models
from graphpass.reports.diff.operators import operators_of
from graphpass.reports.picture import picture_of


def converted(path, passes="to-openvino,fuse-attention,make-stateful"):
    before = graphpass.load(path)
    after = graphpass.PassManager(graphpass.parse(passes)).run(before).model
    return picture_of(["before", "after"], before, after, diff_models(before, after))


def names_in(picture, side):
    for group in picture["groups"]:
        part = group["sides"][side]
        for names in part["names"]:
            yield from names[: len(part["nodes"])]


def check(picture):
    """Rows hold each operator of each side once, in execution order, and reads are of operators upstream."""
    for group in picture["groups"]:
        for side, part in enumerate(group["sides"]):
            count = len(part["nodes"])
            assert [row[side] for row in group["rows"] if row[side] is not None] == list(range(count))
            assert all(len(names) == count + len(part["weights"]) for names in part["names"])
            for place, node in enumerate(part["nodes"]):
                reads = [read for read in node[4] if isinstance(read, int)]
                assert all(-len(part["weights"]) <= read < place for read in reads)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("file", quick_files(model_files()))
def test_a_picture_holds_every_operator_once(file):
    model = exported(file)
    picture = picture_of(["a model"], model)
    check(picture)
    shown = list(names_in(picture, 0))
    expected = [node.name for node in operators_of(model).values() if node.op not in {"Identity", "Result"}]
    assert len(expected) <= len(shown)
    assert set(expected) <= set(shown)


def test_equal_layers_are_folded_into_one():
    model = graphpass.load(export("llama_12l", "onnx"))
    before, layers, after = picture_of(["a model"], model)["groups"]
    assert (before["layers"], layers["layers"], after["layers"]) == ([], list(range(12)), [])
    assert layers["title"] == "layers 0-11"
    (side,) = layers["sides"]
    assert len(side["names"]) == 12
    place = next(place for place, node in enumerate(side["nodes"]) if node[0] == "Softmax")
    assert [names[place] for names in side["names"]] == [f"/model/layers.{n}/self_attn/Softmax" for n in range(12)]
    weights = [names[len(side["nodes"]) :] for names in side["names"]]
    assert "model.layers.7.input_layernorm.weight" in weights[7]
    assert "model.layers.7.input_layernorm.weight" not in weights[6]


@pytest.mark.slow
def test_a_changed_layer_is_not_folded():
    before = graphpass.load(export("llama_12l", "onnx"))
    after = before.clone()
    node = next(node for node in after.proto.graph.node if node.name == "/model/layers.5/self_attn/Softmax")
    next(given for given in node.attribute if given.name == "axis").i = 2
    after.mark_edited()
    picture = picture_of(["before", "after"], before, after, diff_models(before, after))
    check(picture)
    others = [layer for layer in range(12) if layer != 5]
    assert [group["layers"] for group in picture["groups"] if group["layers"]] == [others, [5]]
    changed = next(group for group in picture["groups"] if group["layers"] == [5])
    assert changed["changes"] == {"changed": 1}
    for side, axis in enumerate(["-1", "2"]):
        (node,) = (node for node in changed["sides"][side]["nodes"] if node[1] == "changed")
        assert (node[0], node[3]["axis"], node[5]) == ("Softmax", axis, {"axis": axis})


@pytest.mark.parametrize(
    ("variant", "passes", "gone", "new"),
    [
        ("onnx", "to-openvino,fuse-attention,make-stateful", "Softmax", "ScaledDotProductAttention"),
        ("ov-stateless", "make-stateful", "Result", "Assign"),
    ],
)
def test_changes_of_a_conversion_are_side_by_side(variant, passes, gone, new):
    picture = converted(export("llama", variant), passes)
    check(picture)
    (group,) = (group for group in picture["groups"] if group["layers"])
    assert group["layers"] == [0, 1]
    before, after = group["sides"]
    assert gone in {node[0] for node in before["nodes"] if node[1] == "removed"}
    assert new in {node[0] for node in after["nodes"] if node[1] in {"added", "changed"}}
    aligned = [row for row in group["rows"] if None not in row]
    named = [(before["names"][0][left], after["names"][0][right]) for left, right in aligned]
    assert len([pair for pair in named if pair[0] == pair[1]]) > len(after["nodes"]) / 2
    assert all(left < other for (left, _), (other, _) in pairwise(aligned))


@pytest.mark.slow
def test_pictures_are_deterministic():
    pictures = [json.dumps(converted(export("gpt2", "onnx"))) for _ in range(2)]
    assert pictures[0] == pictures[1]


def test_a_model_without_layers_is_one_group():
    import onnx
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"], name="it")], "g", ports[:1], ports[1:])
    from graphpass.dialects.onnx.model import OnnxModel

    model = OnnxModel(helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    (group,) = picture_of(["a model"], model)["groups"]
    assert (group["title"], group["layers"], len(group["rows"])) == ("all operators", [], 3)


@pytest.mark.slow
def test_size_is_linear_in_layers(tmp_path):
    sizes = []
    for layers in (8, 16, 32):
        model = graphpass.load(scaled("llama", "tiny", tmp_path / str(layers), layers=layers))
        picture = picture_of(["a model"], model)
        sizes.append(len(json.dumps(picture)))
        assert len(picture["groups"]) == 3
    assert sizes[2] - sizes[1] < 2.2 * (sizes[1] - sizes[0])
