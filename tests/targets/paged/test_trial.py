"""Trials of SDPAToPagedAttention."""

from __future__ import annotations

import pytest
from support.loaded import openvino_model
from support.models import vision
from targets import state_mutants

import graphpass
from graphpass.targets import check_model


def test_a_trial_feeds_token_types():
    report = check_model(state_mutants.with_token_types(openvino_model("llama")), "paged")
    assert report.holds
    assert "a prompt's logits differ" in report.confirmation.tried


@pytest.mark.slow
def test_a_trial_feeds_features_of_images():
    report = check_model(graphpass.load(vision("qwen3_vl")), "paged")
    assert report.holds
    assert "a prompt's logits differ" in report.confirmation.tried
