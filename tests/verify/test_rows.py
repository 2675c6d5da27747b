"""Comparisons with models that take padding in front for tokens."""

from __future__ import annotations

import pytest
from support.models import export

import graphpass
from graphpass.manager import PassManager
from graphpass.model import Model, load
from graphpass.passes.mask_padding import MaskPadding
from graphpass.verify import compare
from graphpass.verify.rows import misreads_left_padding


@pytest.fixture(scope="module")
def builder_s() -> Model:
    return load(export("llama", "onnx-genai"))


def test_which_models_misread_it(builder_s):
    assert misreads_left_padding(builder_s)
    assert not misreads_left_padding(load(export("llama", "onnx")))


def test_the_batch_is_compared_with_each_row_alone(builder_s):
    candidate = PassManager(graphpass.get_target("cpu").pipeline(builder_s)).run(builder_s).model
    comparison = compare(builder_s, candidate, steps=3)
    assert comparison.passed, comparison.summary()
    assert not comparison.skipped
    assert "padded on the left" in comparison.sequences[-1].description


def test_another_exporter_s_model_computes_the_same(builder_s):
    comparison = compare(builder_s, load(export("llama", "onnx")), steps=3)
    assert comparison.passed, comparison.summary()


def test_a_candidate_that_misreads_it_is_found(builder_s):
    comparison = compare(load(export("llama", "onnx")), builder_s, steps=3)
    assert not comparison.passed
    assert comparison.divergence is not None
    assert (comparison.divergence.sequence, comparison.divergence.step) == (2, 0)


def test_a_model_is_the_same_as_itself(builder_s):
    assert compare(builder_s, builder_s, steps=3).passed


@pytest.mark.parametrize("name", ["lfm2", "qwen3_next"])
def test_a_candidate_whose_states_keep_padding_out_is_right(name):
    """Those of the reference absorb it: each row alone tells what is right."""
    absorbing = load(export(name, "ov-stateless"))
    masked = PassManager([MaskPadding()]).run(absorbing).model
    assert (misreads_left_padding(absorbing), misreads_left_padding(masked)) == (True, False)
    comparison = compare(absorbing, masked, steps=3)
    assert comparison.passed, comparison.summary()
    assert not compare(masked, absorbing, steps=0).passed
