"""Rotations by positions that count from the first token of each step, as in exports of Bamba, keep them."""

from __future__ import annotations

import functools

import pytest
from support.loaded import exported, run_once

import graphpass
from graphpass.analysis.equations.grouped_query import GroupedQuery, find_grouped_queries
from graphpass.verify import compare
from graphpass.verify.structure.proof import compare_structures


@functools.cache
def restarting() -> graphpass.Model:
    """llama, with positions from 0 on in each step."""
    model = exported("llama/onnx").clone()
    rewriter = model.rewriter()
    write = rewriter.under("positions")
    length = write.op("Squeeze", write.size(rewriter.graph.parameters["input_ids"], 1), axes=[0])
    zero, one = write.number(0, "i64", "zero"), write.number(1, "i64", "one")
    row = write.op("Unsqueeze", write.op("Range", zero, length, one), axes=[0])
    rewriter.redirect_uses(rewriter.graph.parameters["position_ids"], row)
    rewriter.finish()
    return model


def test_rotation_stays_outside_of_attention() -> None:
    read = list(restarting().analysis(find_grouped_queries).values())
    assert all(isinstance(group, GroupedQuery) and group.rotations is None for group in read)
    result = run_once(restarting(), "fuse-functions,fuse-group-query-attention").model
    assert any(result.graph.of_op("GroupQueryAttention"))
    assert compare(restarting(), result, steps=3).passed


def test_angles_stay_computed() -> None:
    record = run_once(restarting(), "tabulate-angles{positions=41}").records[-1].result
    assert not record.changed


def test_prompts_in_chunks_are_refused() -> None:
    passes = "make-static{length=8,past=32}"
    with pytest.raises(graphpass.UnsupportedError, match="count from the first token of each step") as caught:
        run_once(restarting(), passes)
    assert caught.value.id == "GP392"
    assert run_once(restarting(), "make-static{length=1,past=32}").records[-1].result.changed
    assert run_once(exported("llama/onnx"), passes).records[-1].result.changed


def test_positions_of_the_cache_are_not_proven_equal() -> None:
    found = compare_structures(exported("llama/onnx"), restarting())
    assert found is not None
    assert found.equal < found.operators
    assert not compare(exported("llama/onnx"), restarting(), steps=2).passed
