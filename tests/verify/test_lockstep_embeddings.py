"""Comparisons of models that take embeddings: how they are fed, and faults that only images show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.models import vision

import graphpass
from graphpass.verify import compare, compare_within

if TYPE_CHECKING:
    from graphpass.ir.model import Model


def same_along_all_axes(model: Model) -> Model:
    """Let each token have the position in time along all axes."""
    model = model.clone()
    graph, rewriter = model.graph, model.rewriter()
    positions = graph.parameters["position_ids"]
    uses = list(graph.uses(positions))
    time = rewriter.under("fault").op("Gather", positions, [0, 0, 0], axis=0)
    for use in uses:
        rewriter.redirect(use.node, use.port, time)
    rewriter.finish()
    return model


@pytest.mark.parametrize("layers", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_positions_along_the_wrong_axis_are_found(layers: bool) -> None:
    model = graphpass.load(vision("qwen2_vl"))
    found = compare_within(model, same_along_all_axes(model), all_layers=layers, steps=2)
    assert found.divergence is not None
    failed = found.sequences[found.divergence.sequence]
    assert "of an image" in failed.description


def with_features_of_other_tokens(model: Model) -> Model:
    """Let each token of an image have the features of the token after it."""
    model = model.clone()
    graph, rewriter = model.graph, model.rewriter()
    (gather,) = (use.node for use in graph.uses(graph.parameters["deepstack_visual_embeds"]) if use.node.op == "Gather")
    uses = list(graph.uses(gather.outputs[0]))
    shifted = rewriter.under("fault").op("Roll", gather.outputs[0], [1], [0])
    for use in uses:
        rewriter.redirect(use.node, use.port, shifted)
    rewriter.finish()
    return model


def test_features_of_other_tokens_are_found() -> None:
    model = graphpass.load(vision("qwen3_vl"))
    assert compare(model, with_features_of_other_tokens(model), steps=1).divergence is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2_vl", "llava"])
def test_layer_by_layer(name: str) -> None:
    model = graphpass.load(vision(name))
    found = compare_within(model, model.clone(), all_layers=True, steps=2)
    assert found.passed
    layers = [f"{kind} {number}" for number in range(2) for kind in ("layer", "feed-forward")]
    assert [part.name for part in found.parts] == ["embedding", *layers, "head"]
    assert not any("angles" in text or "masks" in text for text in found.skipped)
