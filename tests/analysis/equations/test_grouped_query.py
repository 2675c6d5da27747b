"""Attention as operands of GroupQueryAttention, in models of many families."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphpass.analysis.attention.mask import AttentionMask
from graphpass.analysis.equations.grouped_query import GroupedQuery, find_grouped_queries
from graphpass.ir.miss import Miss
from graphpass.testing import FAMILIES, run, tiny_model


def read(model) -> list[GroupedQuery | Miss]:
    return [*model.analysis(find_grouped_queries).values()]


@pytest.mark.parametrize("name", ["llama", "qwen2", "phi3", "gpt2", "gemma2", "mistral", "qwen3"])
def test_operands_of_families(name):
    family = FAMILIES[name]
    found = read(tiny_model(name))
    assert len(found) == 2
    for group in found:
        assert isinstance(group, GroupedQuery), group
        assert (group.heads, group.key_heads, group.head_dim, group.value_dim) == (4, family.kv_heads, 8, 8)
        assert group.scale == pytest.approx(8**-0.5)
        assert group.softcap == family.cap
        assert isinstance(group.mask, AttentionMask)
        assert group.key.cache.role == "key"
        assert (group.key.past.shape[2], group.key.new.shape[1]) == ("past", family.kv_heads)
        assert len(group.key.copies) == (0 if family.kv_heads == 4 else len(group.value.copies))
        assert group.wants_padding is None
        assert (group.rotations is None) == (family.positions != "rotary")


@pytest.mark.parametrize(("head_dim", "inside"), [(8, False), (16, True), (24, False), (32, True)])
def test_kernels_rotate_heads_of_some_sizes(head_dim, inside):
    (group,) = read(tiny_model(replace(FAMILIES["llama"], head_dim=head_dim), layers=1))
    assert group.rotations is not None
    assert group.rotates_inside is inside


def test_values_of_fewer_elements_are_padded_on_request():
    (group,) = read(tiny_model("llama", layers=1))
    assert replace(group, value_dim=4).wants_padding.reason == (
        "GroupQueryAttention requires keys and values of one size, not 8 and 4; "
        "fuse-group-query-attention{pad-values=true} pads values"
    )


def test_fused_operators_are_not_read_again():
    fused = run(tiny_model("llama", layers=1), "fuse-group-query-attention{context=64}")
    assert read(fused) == []


@pytest.mark.parametrize("name", ["bloom", "gpt_oss"])
def test_masks_beside_positions_are_kept(name):
    (group, *_) = read(tiny_model(name))
    assert isinstance(group, GroupedQuery)
    bias = group.mask if isinstance(group.mask, Miss) else None
    assert (bias is not None) == (name == "bloom")


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_a_batch_of_one_row(kv_heads):
    """The batch may be a fixed size, as in exports of one row."""
    model = tiny_model(replace(FAMILIES["llama"], kv_heads=kv_heads), layers=1)
    ports = (*model.proto.graph.input, *model.proto.graph.output, *model.proto.graph.value_info)
    for size in (size for port in ports for size in port.type.tensor_type.shape.dim):
        if size.dim_param == "batch":
            size.dim_value = 1
    model.mark_edited()
    assert model.graph.parameters["input_ids"].shape[0] == 1
    (group,) = read(model)
    assert isinstance(group, GroupedQuery), group
