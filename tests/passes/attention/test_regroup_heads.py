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


def folded(length: str = "1") -> Model:
    """Return a decoder of single tokens whose query heads are rows of the heads of keys and values."""
    text = text_of_family(FAMILIES["llama"], 1).replace("[batch, length]", f"[batch, {length}]")
    text = re.sub(r"%L0\.(key|value)\.repeated = .*\n", "", text)
    text = text.replace("Transpose(%L0.key.repeated)", "Transpose(%present.0.key)")
    text = text.replace("%L0.value.repeated", "%present.0.value")
    rows = "%L0.q.rows = Reshape(%L0.q.rotated, [0, 2, 2, 8])\n%L0.qk = MatMul(%L0.q.rows,"
    text = text.replace("%L0.qk = MatMul(%L0.q.rotated,", rows)
    attended = re.search(r"(%\S+) = MatMul\(%L0\.softmax, .*\n", text)
    assert attended is not None
    unfolded = f"{attended[0]}%L0.unfolded = Reshape({attended[1]}, [0, 4, 1, 8])\n"
    before, after = text.split(attended[0])
    return parse_model(before + unfolded + after.replace(attended[1] + ")", "%L0.unfolded)"))


@pytest.mark.parametrize("before", ["", "to-openvino", "to-openvino,fuse-attention"])
def test_rows_become_heads(before):
    model = run(folded(), before)
    result = run(model, "regroup-heads")
    assert_fused(result, Broadcast=2)
    assert_same(model, result)


@pytest.mark.parametrize("target", ["cpu", "ort"])
def test_targets_fuse_attention_of_rows(target):
    model = folded()
    result = run(model, graphpass.get_target(target).pipeline(model))
    assert_fused(result, **{"GroupQueryAttention" if target == "ort" else "ScaledDotProductAttention": 1})
    assert_same(model, result)
