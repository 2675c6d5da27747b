"""The pass `fuse-skip-norms`: which sums it joins with norms, and the numbers."""

from __future__ import annotations

import pytest
from support.loaded import exported, run_once
from support.operators import count_operators

from graphpass.verify import compare

SKIP, SKIP_LAYER = "SkipSimplifiedLayerNormalization", "SkipLayerNormalization"


@pytest.mark.parametrize(
    ("place", "kind", "sums"),
    [
        ("llama/onnx", SKIP, 4),
        pytest.param("gpt2/onnx", SKIP_LAYER, 5, marks=pytest.mark.slow),
        pytest.param("gemma3_text/onnx", SKIP, 8, marks=pytest.mark.slow),
        pytest.param("falcon/onnx", SKIP_LAYER, 2, marks=pytest.mark.slow),
        pytest.param("opt/onnx", SKIP_LAYER, 1, marks=pytest.mark.slow),
    ],
)
def test_fused_models_compute_the_same(place, kind, sums):
    result = run_once(exported(place), "fuse-functions,fuse-skip-norms")
    assert result.records[-1].result.statistics == ({"sums joined": sums} if sums else {})
    found = count_operators(result.model)
    assert found[kind] == sums
    assert compare(exported(place), result.model, steps=3).passed
    assert not run_once(result.model, "fuse-skip-norms").records[-1].result.changed


def test_outputs_for_training_are_left_out():
    result = run_once(exported("llama/onnx"), "fuse-functions,fuse-skip-norms").model
    joined = [node for node in result.proto.graph.node if node.op_type == SKIP]
    assert all(list(map(bool, node.output)) == [True, False, False, True] for node in joined[:-1])
