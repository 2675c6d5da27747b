"""Feed-forward networks with large weights run channel by channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.loaded import converted, exported
from verify.layers.faults_of_layers import TINY, edited, layer_of, scale_feed_forward

from graphpass.verify import compare_within
from graphpass.verify.layers import slices

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.ir.model import Model
    from graphpass.ir.rewriter import Rewriter


def join_gates(rewriter: Rewriter, model: Model) -> None:
    """The gates of one layer come from a product with what they let through."""
    up, gate = (
        next(node for node in layer_of(model, "MatMul", 6) if name in node.name) for name in ("up_proj", "gate_proj")
    )
    weights = [model.graph.constant(node.source(1), 10**6) for node in (gate, up)]
    joined = rewriter.op("MatMul", gate.source(), rewriter.constant(np.concatenate(weights, 1), "", "w"), name="joined")
    for node, part in zip((gate, up), rewriter.split(joined, -1, [weights[0].shape[1]] * 2, "parts"), strict=True):
        rewriter.replace(node.outputs[0], part)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut what is larger than a fixture's weights."""
    monkeypatch.setattr(slices, "_MOST", 4_000)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("bloom/onnx", "cpu"),  # biases
        ("llama/onnx-fp16", "ort"),
        pytest.param("qwen3/ov-stateful", "gpu", marks=pytest.mark.slow),
    ],
)
def test_large_feed_forwards_run_channel_by_channel(place: str, target: str) -> None:
    model = exported(place)
    found = compare_within(model, converted(model, target).model, TINY, steps=0)
    assert found.passed, found.summary()
    assert sum(", channels 0 to " in run.description for run in found.sequences) >= 3


@pytest.mark.usefixtures("small_slices")
def test_feed_forwards_before_a_norm_run_whole() -> None:
    """It would hide by how much one slice is larger than another."""
    model = exported("gemma2/onnx")
    found = compare_within(model, converted(model, "ort").model, TINY, steps=0)
    assert found.passed, found.summary()
    assert not any("channels" in run.description for run in found.sequences)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize(("edit", "passes"), [(join_gates, True), (scale_feed_forward, False)])
def test_channels_of_one_layer(edit: Callable[[Rewriter, Model], None], passes: bool) -> None:
    model = exported("llama_12l/onnx")
    found = compare_within(model, edited(model, edit), TINY, steps=0)
    assert found.passed is passes, found.summary()
    assert any(run.description.startswith("feed-forward 6, channels 0 to ") for run in found.sequences)
