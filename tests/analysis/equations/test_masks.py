"""`show_mask`: masks of the exports, and masks that only seem to be causal."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import helper
from support.loaded import exported, onnx_model

from graphpass.analysis.attention.find import find_attention, read_scores
from graphpass.analysis.equations.masks import ShownMask, show_mask
from graphpass.analysis.equations.numbering import find_numbers
from graphpass.ir.pattern import Miss

PADDED = ShownMask(None, is_padded=True)
WINDOWED = ShownMask(8, is_padded=True)


def shown(model):
    found = []
    for attention in model.analysis(find_attention):
        scores = read_scores(model.graph, attention.node)
        found.append(show_mask(model, attention.node, tuple(scores.masks)))
    return found


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("falcon", [PADDED] * 2),
        ("gemma2", [WINDOWED, PADDED] * 2),
        ("gpt2_upcast", [PADDED] * 2),
        ("gpt_neo", [PADDED, WINDOWED]),
        ("gpt_oss", [WINDOWED, PADDED]),
        ("llama", [PADDED] * 2),
        ("opt", [PADDED] * 2),
    ],
)
def test_exports(name, wanted):
    assert shown(exported(f"{name}/onnx")) == wanted


def test_alibi_is_more_than_a_mask():
    (reason, _) = shown(exported("bloom/onnx"))
    assert isinstance(reason, Miss)
    assert "holds more than positions to hide: alibi" in str(reason)


@pytest.mark.parametrize("place", [3, 20, 400])
def test_a_mask_that_changes_at_a_place_is_not_shown(place):
    """Keys after ``place`` count as that place, so that later queries see what comes after them."""
    model = onnx_model("llama")
    graph = model.proto.graph
    (causal,) = [node for node in graph.node if node.op_type == "LessOrEqual"]
    graph.initializer.append(onnx.numpy_helper.from_array(numpy.array(place), "place"))
    graph.node.insert(list(graph.node).index(causal), helper.make_node("Min", [causal.input[0], "place"], ["least"]))
    causal.input[0] = "least"
    model.mark_edited()
    assert all("hides other positions than it seems to" in str(one) for one in shown(model))


def test_a_mask_that_weighs_is_not_shown():
    model = onnx_model("opt")
    graph = model.proto.graph
    (chosen,) = {node.output[0]: node for node in graph.node if node.op_type == "ScatterND"}.values()
    old = chosen.output[0]
    graph.initializer.append(onnx.numpy_helper.from_array(numpy.float32(-1), "less"))
    graph.node.insert(list(graph.node).index(chosen) + 1, helper.make_node("Add", ["inner", "less"], [old]))
    chosen.output[0] = "inner"
    model.mark_edited()
    assert all("adds numbers to positions that it shows" in str(one) for one in shown(model))


def test_layers_share_what_is_computed_alike():
    model = exported("llama_12l/onnx")
    numbers = model.analysis(find_numbers)
    masks = [attention.masks[0].value for attention in model.analysis(find_attention)]
    assert len({mask.name for mask in masks}) == 12
    assert len({numbers.of(mask) for mask in masks}) == 1
    keys = [attention.key for attention in model.analysis(find_attention)]
    assert len({numbers.of(key) for key in keys}) == 12
