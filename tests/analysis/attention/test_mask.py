"""`plain_mask`: masks of the exports, and masks that only seem to be causal."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import helper
from support.loaded import exported, onnx_model

from graphpass.analysis.attention.mask import AttentionMask, plain_mask
from graphpass.analysis.caches.masks import find_masks
from graphpass.ir.miss import Miss

#: Window, and whether padding is hidden.
PADDED, WINDOWED = (None, True), (8, True)


def shown(model):
    found = [plain_mask(mask) for mask in model.analysis(find_masks)]
    return [(one.window, one.is_padded) if isinstance(one, AttentionMask) else one for one in found]


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
def test_masks_of_exports_are_found(name, wanted):
    assert shown(exported(f"{name}/onnx")) == wanted


def test_alibi_is_more_than_a_mask():
    (reason, _) = shown(exported("bloom/onnx"))
    assert isinstance(reason, Miss)
    assert "components other than causal, window and padding: alibi" in str(reason)


@pytest.mark.parametrize("place", [3, 20, 400])
def test_a_mask_changing_at_a_position_is_not_plain(place):
    """Keys after ``place`` count as that place, so that later queries see what comes after them."""
    model = onnx_model("llama")
    graph = model.proto.graph
    (causal,) = [node for node in graph.node if node.op_type == "LessOrEqual"]
    graph.initializer.append(onnx.numpy_helper.from_array(numpy.array(place), "place"))
    graph.node.insert(list(graph.node).index(causal), helper.make_node("Min", [causal.input[0], "place"], ["least"]))
    causal.input[0] = "least"
    model.mark_edited()
    assert all("hides other positions, unless" in str(one) for one in shown(model))


def test_a_mask_adding_to_visible_positions_is_not_plain():
    model = onnx_model("opt")
    graph = model.proto.graph
    (chosen,) = {node.output[0]: node for node in graph.node if node.op_type == "ScatterND"}.values()
    old = chosen.output[0]
    graph.initializer.append(onnx.numpy_helper.from_array(numpy.float32(-1), "less"))
    graph.node.insert(list(graph.node).index(chosen) + 1, helper.make_node("Add", ["inner", "less"], [old]))
    chosen.output[0] = "inner"
    model.mark_edited()
    assert all("adds a bias to the scores of visible keys" in str(one) for one in shown(model))
