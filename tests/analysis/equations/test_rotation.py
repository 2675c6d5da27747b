"""`find_rotation` and `rotation_tables`: rotary embeddings of the exports, and what has no table."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import helper
from support.loaded import exported, onnx_model

from graphpass.analysis.equations.grouped_query import find_grouped_queries
from graphpass.analysis.equations.rotation import rotation_tables
from graphpass.ir.miss import MissError


def rotations(model):
    return [one.rotations for one in model.analysis(find_grouped_queries).values()]


@pytest.mark.parametrize(
    ("name", "size", "interleaved", "counts_slots"),
    [
        ("gemma3_text", 16, False, True),
        ("gpt_oss", 16, False, True),
        ("gptj", 8, True, False),
        ("llama", 16, False, False),
        ("llama_12l", 8, False, False),
        ("phi3", 16, False, False),
    ],
)
def test_rotations_of_exports_are_found(name, size, interleaved, counts_slots):
    for query, key in rotations(exported(f"{name}/onnx")):
        assert (query.size, query.interleaved, query.counts_slots) == (size, interleaved, counts_slots)
        assert query.signature == key.signature


def test_halves_round_after_each_operator():
    for query, key in rotations(exported("llama/onnx-fp16")):
        assert query.size == 16
        assert query.signature == key.signature


@pytest.mark.parametrize("name", ["bloom", "gpt2", "opt"])
def test_learned_positions_are_not_a_rotation(name):
    assert rotations(exported(f"{name}/onnx")) == [None, None]


def test_kinds_of_layers_have_tables_of_their_own():
    found = rotations(exported("gemma3_text/onnx"))
    assert len({query.signature for query, _ in found}) == 2


def test_tables_are_cosines_and_sines():
    model = exported("llama/onnx")
    cos, sin = rotation_tables(model, rotations(model)[0][0], 300)
    angles = numpy.arange(300)[:, None] * 10000.0 ** (-numpy.arange(8) / 8)
    assert numpy.allclose(cos, numpy.cos(angles), atol=2e-5)
    assert numpy.allclose(sin, numpy.sin(angles), atol=2e-5)


def test_angles_of_the_longest_position_have_no_table():
    """As in dynamic scaling: all angles shrink by the largest position of the step."""
    model = onnx_model("llama")
    graph = model.proto.graph
    cosine = next(node for node in graph.node if node.op_type == "Cos")
    angles = cosine.input[0]
    made = [
        helper.make_node("Cast", ["position_ids"], ["positions/f32"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Slice", ["positions/f32", "last", "end", "columns"], ["positions/last"]),
        helper.make_node("Add", ["positions/last", "hundred"], ["positions/scale"]),
        helper.make_node("Unsqueeze", ["positions/scale", "columns"], ["positions/scales"]),
        helper.make_node("Div", [angles, "positions/scales"], ["angles/scaled"]),
    ]
    for name, values in {"last": [-1], "end": [2**62], "columns": [1]}.items():
        graph.initializer.append(onnx.numpy_helper.from_array(numpy.array(values), name))
    graph.initializer.append(onnx.numpy_helper.from_array(numpy.float32(100), "hundred"))
    place = list(graph.node).index(cosine)
    for number, node in enumerate(made):
        graph.node.insert(place + number, node)
    for node in graph.node:
        if node.op_type in {"Cos", "Sin"}:
            node.input[0] = "angles/scaled"
    model.mark_edited()
    rotation = rotations(model)[0][0]
    with pytest.raises(MissError) as caught:
        rotation_tables(model, rotation, 64)
    assert "depend on other positions of the step" in caught.value.miss.reason
