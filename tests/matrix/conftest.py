"""A project as the working directory of a test, and cells of large files."""

from dataclasses import replace
from pathlib import Path

import pytest
from matrix.cells import cell


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("llama", "qwen3"):
        (tmp_path / "exports" / name / "onnx").mkdir(parents=True)
    Path("fused.toml").write_text('[[pass]]\nname = "fuse-attention"\n')
    return tmp_path


@pytest.fixture
def cells(tmp_path):
    found = []
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "model.onnx").open("wb") as stream:
            stream.truncate(100 << 20)
        source, output = str(tmp_path / name), str(tmp_path / "out" / name)
        found.append(replace(cell(name), source=source, output=output, published=output))
    return found
