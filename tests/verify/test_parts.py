"""Parts of two models are paired by the weights that they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.loaded import converted, exported
from verify.layers.faults_of_layers import TINY, edited, exchange_weights

from graphpass.verify import compare_within

if TYPE_CHECKING:
    pass


def test_exchanged_weights_of_two_layers_are_found() -> None:
    model = exported("llama_12l/onnx")
    found = compare_within(model, edited(converted(model).model, exchange_weights), TINY, steps=0)
    assert found.divergence is not None
    assert "layer 5" in found.divergence.reason


@pytest.mark.slow
def test_a_model_of_one_token_at_a_time_runs_whole() -> None:
    model = exported("mamba/onnx-raw")
    found = compare_within(model, model, TINY, steps=0)
    assert found.parts == ()
    assert any("the number of new tokens is fixed" in text for text in found.skipped)


@pytest.mark.slow
def test_models_without_weights_in_common_run_whole() -> None:
    found = compare_within(exported("llama/onnx"), exported("mistral_sw8/onnx"), TINY, steps=0)
    assert not found.passed
    assert found.parts == ()
    assert "layer by layer: no values between layers have the same weights upstream in both models" in found.skipped
