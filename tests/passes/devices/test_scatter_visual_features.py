"""scatter-visual-features: NPUW recognizes the sums, and the numbers stay."""

from __future__ import annotations

import pytest
from support.models import vision

import graphpass
from graphpass.analysis.caches.visual_features import added_features
from graphpass.testing import assert_fused, assert_same, run, tiny_model
from graphpass.verify import compare
from graphpass.verify.feeding import feed
from graphpass.verify.structure.proof import compare_structures


@pytest.fixture(scope="module")
def model():
    return graphpass.load(vision("qwen3_vl"))


def test_features_of_images_are_scattered(model):
    result = run(model, "scatter-visual-features")
    before = len([*model.graph.of_op("ScatterNDUpdate")])
    assert_fused(result, NonZero=1, GatherND=1, ScatterNDUpdate=before + 1)
    assert not list(added_features(result.graph))
    assert compare(model, result, steps=1).divergence is None
    assert compare_structures(model, result, feed) is not None


def test_models_without_images_are_unchanged():
    model = tiny_model("llama", "stateful", layers=1)
    result = run(model, "scatter-visual-features")
    assert result.digest() == model.digest()
    assert_same(model, result)
