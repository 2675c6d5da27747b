"""Notebooks of docs/notebooks run, and print what is stored in them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from support.models import fixtures

from graphpass.engine import registry

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("docs_notebooks", ROOT / "docs" / "notebooks.py")
notebooks = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(notebooks)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(notebooks.FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_output_is_current(path, tmp_path, monkeypatch):
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "fixtures").symlink_to(fixtures())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry._PASSES, "registered", {})
    notebook = notebooks.read(path)
    assert notebooks.printed(notebook) == [notebooks.stored(cell) for cell in notebooks.code_cells(notebook)]
