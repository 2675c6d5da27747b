"""A project with two models and a pipeline, the working directory of a test."""

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("llama", "qwen3"):
        (tmp_path / "exports" / name / "onnx").mkdir(parents=True)
    Path("fused.toml").write_text('[[pass]]\nname = "fuse-attention"\n')
    return tmp_path
