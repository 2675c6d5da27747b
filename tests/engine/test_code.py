"""The digest of code, which results are keyed by."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphpass.artifacts.manifest import versions
from graphpass.engine.code import digest_of_code

ROOT = Path(__file__).resolve().parents[2]

PRINT = "from graphpass.engine.code import digest_of_code; print(digest_of_code(['graphpass']))"


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "some_plugin" / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/scale.py"):
        (tmp_path / "some_plugin" / name).write_text("")
    (tmp_path / "some_module.py").write_text("X = 1")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_contents_and_places_of_files_count(plugin):
    names = ["some_module", "some_plugin"]
    found = [digest_of_code(names)]
    for change in (
        lambda: (plugin / "some_plugin/inner/scale.py").write_text("FACTOR = 2"),
        lambda: (plugin / "some_plugin/inner/scale.py").rename(plugin / "some_plugin/scale.py"),
        lambda: (plugin / "some_module.py").write_text("X = 2"),
    ):
        change()
        found.append(digest_of_code(names))
    assert len(set(found)) == 4
    assert "some_plugin" not in sys.modules
    (plugin / "some_plugin/notes.txt").write_text("no code")
    assert digest_of_code([*reversed(names), "missing_module"]) == found[-1]


def test_an_installation_of_the_same_code_has_the_same_digest(tmp_path):
    """However it is installed: in one folder, or as a checkout with `passes` beside `graphpass`."""
    for name, place in {"graphpass": "", "passes": "passes", "cli": "cli"}.items():
        shutil.copytree(ROOT / name, tmp_path / "graphpass" / place, dirs_exist_ok=True)
    joined = [sys.executable, "-c", PRINT]
    told = subprocess.run(joined, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout.strip() == digest_of_code(["graphpass"]), told.stderr
    assert versions()["graphpass"].endswith(f"+{told.stdout[:12]}")
