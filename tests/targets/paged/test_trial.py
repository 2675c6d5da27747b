"""Trials of SDPAToPagedAttention."""

from __future__ import annotations

from support.loaded import openvino_model
from targets import state_mutants

from graphpass.targets import check_model


def test_a_trial_feeds_token_types():
    report = check_model(state_mutants.with_token_types(openvino_model("llama")), "paged")
    assert report.holds
    assert "a prompt's logits differ" in report.confirmation.tried
