"""The pass `add-attention-mask`."""

from __future__ import annotations

import pytest
from support.maskless import maskless

import graphpass
from graphpass.testing import assert_same, run, tiny_model


@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_padding_is_excluded(family):
    model = maskless(family)
    result = run(model, "to-openvino,fuse-attention,add-attention-mask")
    assert_same(model, result)
    assert_same(tiny_model(family, layers=1), result)


def test_a_mask_that_exists_is_kept():
    model = tiny_model("llama", "openvino", layers=1)
    assert run(model, "fuse-attention,add-attention-mask").digest() == run(model, "fuse-attention").digest()


@pytest.mark.parametrize("target", ["cpu", "npu", "paged"])
def test_targets_add_the_input_that_their_runtime_feeds(target):
    model = maskless()
    result = run(model, graphpass.get_target(target).pipeline(model))
    assert ("attention_mask" in result.graph.parameters) is (target != "paged")
