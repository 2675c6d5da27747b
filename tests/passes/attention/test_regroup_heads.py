"""The pass `regroup-heads`, on both dialects."""

from __future__ import annotations

import re

import pytest
from support.loaded import run_once

import graphpass
from graphpass.dialects.text import parse_model
from graphpass.ir.model import Model
from graphpass.testing import FAMILIES, assert_fused, assert_same, run
from graphpass.testing.families import text_of_family


def tiled(more: str = "") -> Model:
    """Return a decoder whose heads of keys and values are repeated as a whole."""
    copies, tile = r"Reshape\(%L0\.(key|value)\.copies, [^)]*\)", r"Tile(%present.0.\1, [1, 2, 1, 1])"
    text, count = re.subn(copies, tile, text_of_family(FAMILIES["llama"], 1))
    assert count == 2
    return parse_model(text + more)


@pytest.mark.parametrize("before", ["", "to-openvino", "to-openvino,fuse-attention"])
def test_heads_are_permuted(before):
    model = run(tiled(), before)
    result = run(model, "regroup-heads")
    assert_fused(result, Tile=0, Broadcast=2)
    assert_same(model, result)


@pytest.mark.parametrize("target", ["cpu", "paged", "ort"])
def test_targets_fuse_the_attention(target):
    model = tiled()
    result = run(model, graphpass.get_target(target).pipeline(model))
    fused = "GroupQueryAttention" if target == "ort" else "ScaledDotProductAttention"
    assert_fused(result, **{fused: 1, "Tile": 0})
    assert_same(model, result)


def test_tiles_with_other_users_stay():
    model = tiled("\n%sum = ReduceSum(%L0.value.repeated) {axes=[3], keep=false}\nResult(%sum) {name=sum}\n")
    result = run_once(model, "regroup-heads")
    assert_fused(result.model, Tile=2)
    assert "its query, key or value has other users than the attention" in str(result.records[0].result.notes)
