"""MoE is the layer of experts that it was made of, however its tokens were sent to experts, and no other."""

from __future__ import annotations

import pytest
from support.fused_experts import fused
from verify.structure.comparing import is_equal
from verify.structure.expert_layers import layer


@pytest.mark.parametrize("router", ["softmax first", "softmax last", "plain"])
@pytest.mark.parametrize("form", ["dense", "gathered", "separate", "sorted"])
def test_experts_are_equal_to_their_fused_operator(form, router):
    model = layer(form, router)
    assert is_equal(model, fused(model)[0], "y")


@pytest.mark.parametrize(
    "other",
    [
        layer("gathered", "plain"),
        layer("gathered", "softmax first", "linear part first"),
        layer("gathered", "softmax first", chosen=1),
        layer("gathered", "softmax first", "pairs"),
    ],
    ids=["weights that are not normalized", "parts exchanged", "one expert for each token", "parts in pairs"],
)
def test_another_layer_is_not_equal(other):
    assert not is_equal(layer("gathered", "softmax first"), fused(other)[0], "y")
