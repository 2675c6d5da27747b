"""Values of the new positions alone, and those that depend on other positions."""

from __future__ import annotations

import pytest
from support.layout_forms import latent, latent_head
from support.pipelines import run_passes

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Skipped
from graphpass.passes.caches.expand_latents import ExpandLatents


def test_latents_of_another_layout_stay():
    model = latent()
    after, result = run_passes(model, ExpandLatents())
    assert isinstance(result, Skipped)
    assert "is not an input to which a Concat appends" in result.reason
    assert after.digest() == model.digest()


def scaled_by_a_size(kind: str, axis: int) -> OnnxModel:
    """Return a model whose keys are scaled by a size of the first result of an operator."""
    model = latent_head("input_ids")
    rewriter, graph = model.rewriter(), model.graph
    write = rewriter.under("counted")
    split, counted = next(graph.of_op("VariadicSplit")), next(graph.of_op(kind)).outputs[0]
    size = write.convert(write.size(counted, axis), "f32")
    rewriter.redirect(split, 0, write.op("Multiply", split.source(), size))
    rewriter.finish()
    return model


@pytest.mark.parametrize(("kind", "axis"), [("Squeeze", 1), ("Gather", 1)], ids=["all positions", "new ones"])
def test_keys_depending_on_lengths_stay(kind, axis):
    model = scaled_by_a_size(kind, axis)
    after, result = run_passes(model, ExpandLatents())
    assert isinstance(result, Skipped)
    assert "Convert computes with a length of the step" in result.reason
    assert after.digest() == model.digest()
