"""Trials on HTP: what cannot be tried, and crashes."""

from __future__ import annotations

from typing import Any

import pytest
from support.commands import in_process
from support.models import export
from targets.qnn.pairs import QNN, phase

from graphpass.targets.qnn import trial


def test_compiling_needs_the_package(capfd: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "is_installed", lambda: False)
    arguments = ["--target", "qnn{prompt=8,capacity=16,compile=true}", "--no-verify", "-o", tmp_path / "out"]
    done = in_process(capfd, "convert", export("llama", "onnx"), *arguments)
    assert "GP321" in done.err
    assert "pip install 'graphpass[qnn]'" in done.err
    assert not (tmp_path / "out").exists()


def test_a_crash_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "is_installed", lambda: True)
    monkeypatch.setattr(trial, "_RUN", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    observed = trial.observe(phase("llama"), phase("llama", "length=1,past=24"))
    assert not isinstance(observed, str)
    assert observed.refused == "its process ended with -11"


def test_a_prefill_model_is_not_tried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "is_installed", lambda: True)
    assert str(QNN.observe(phase("llama"))).startswith("it is a prefill model")
