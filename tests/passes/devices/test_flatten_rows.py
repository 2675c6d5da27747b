"""`flatten-rows`: proven on a model that norms its heads."""

from __future__ import annotations

from support.loaded import exported, run_once

from graphpass.verify import compare
from graphpass.verify.structure.proof import compare_structures


def test_norms_of_heads_are_proven():
    before = run_once(exported("qwen3/onnx"), "fuse-functions").model
    result = run_once(before, "flatten-rows")
    assert result.records[-1].result.statistics == {"norms": 4}
    found = compare_structures(exported("qwen3/onnx"), result.model)
    assert found is not None
    assert found.equal == found.operators > 0
    assert compare(exported("qwen3/onnx"), result.model, steps=3).passed
    assert not run_once(result.model, "flatten-rows").records[-1].result.changed
