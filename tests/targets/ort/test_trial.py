"""Trials on ONNX Runtime."""

from __future__ import annotations

import pytest
from support.models import export

from graphpass.engine.findings import Observation
from graphpass.io import load
from graphpass.runtime.backends import onnxruntime_request
from graphpass.targets.ort import trial


@pytest.fixture
def llama():
    return load(export("llama", "onnx"))


def test_a_decoder_is_opened_and_run(llama, monkeypatch):
    monkeypatch.setattr(trial, "_LARGE", 1)
    observation = trial.observe(llama)
    assert (observation.refused, observation.tried.endswith("and ran a prompt and a step")) == (None, True)


@pytest.mark.parametrize(
    ("large", "refuses", "expected"), [(1, False, [False]), (1, True, [False, True]), (2**40, True, [True])]
)
def test_a_refusal_counts_with_repacked_weights_alone(llama, monkeypatch, large, refuses, expected):
    repacked = []

    def observe(model):
        repacked.append(onnxruntime_request._packs.get())
        return Observation("opened", refused="a reason" if refuses else None)

    monkeypatch.setattr(trial, "_LARGE", large)
    monkeypatch.setattr(trial, "_observe", observe)
    assert trial.observe(llama).refused == ("a reason" if refuses else None)
    assert repacked == expected
