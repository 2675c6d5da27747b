"""The pass `compute-mask`: exports whose callers feed the whole mask of attention."""

from __future__ import annotations

import numpy
import pytest

import graphpass
from graphpass.engine.passes import Skipped
from graphpass.passes.masks.compute_mask import ComputeMask
from graphpass.runtime import open_session
from graphpass.testing import assert_same, run, tiny_model


def given(dialect="onnx", layers=2, kind="f32"):
    """A decoder with the masks of the first layers as an input, added to scores or selecting them."""
    model = tiny_model("llama", dialect, layers=2)
    rewriter = model.rewriter()
    mask = rewriter.input("mask", kind, ["batch", 1, "length", "total"])
    for node in list(model.graph.of_op("Softmax"))[:layers]:
        added = model.graph.producer(node.source())
        if kind == "boolean":
            lowest = rewriter.under(node.name).number(-65504.0, "f32")
            scores = rewriter.op("Select", mask, added.source(), lowest, name=f"{node.name}/selected")
            rewriter.redirect(node, 0, scores)
        else:
            rewriter.redirect(added, 1, mask)
    assert rewriter.finish()
    rewriter = model.rewriter()
    if layers == 2:
        assert rewriter.drop_input("attention_mask")
        rewriter.finish()
    return model


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
def test_the_mask_is_computed(dialect):
    result = run(given(dialect), "compute-mask")
    assert "mask" not in result.graph.parameters
    assert_same(tiny_model("llama", dialect, layers=2), result)


def test_a_mask_of_booleans_selects():
    result, expected = run(given(kind="boolean"), "compute-mask"), tiny_model("llama", layers=2)
    ids, padding = [[0, 0, 5], [1, 5, 9]], [[0, 0, 1], [1, 1, 1]]
    found, wanted = (open_session(model).prefill(ids, padding) for model in (result, expected))
    numpy.testing.assert_allclose(found[:, -1], wanted[:, -1], atol=1e-5)


def test_masks_with_other_parts_stay():
    assert isinstance(ComputeMask().run(given(layers=1)), Skipped)
    assert isinstance(ComputeMask().run(tiny_model("llama")), Skipped)


def test_conversions_compute_it(tmp_path):
    graphpass.save(given(), tmp_path / "model.onnx")
    graphpass.convert(tmp_path / "model.onnx", tmp_path / "out", "ort")
