"""The house: rooms import downwards only, nothing lies about, and the catalogue lists what the pass library has."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphpass
from graphpass.engine.registry import get_pass
from graphpass.passes.catalogue import PASSES

ROOT = Path(__file__).resolve().parents[1]
LOOSE = {"__init__.py", "error_catalog.py", "errors.py", "io.py", "progress.py", "py.typed"}


def defined_passes():
    """Return the module of each class with a name of its own and a method `run`, by that name."""
    found = {}
    for file in sorted((ROOT / "passes").rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            fields = {
                item.target.id: item.value
                for item in (node.body if isinstance(node, ast.ClassDef) else ())
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
            if isinstance(fields.get("name"), ast.Constant):
                module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
                found[fields["name"].value] = f"graphpass.{module}"
    return found


def test_imports_run_downwards_and_never_in_circles(tmp_path):
    house = tmp_path / "graphpass"
    house.mkdir()
    for place in (*(ROOT / "graphpass").iterdir(), ROOT / "passes", ROOT / "cli"):
        (house / place.name).symlink_to(place)
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", ROOT / "pyproject.toml", "--no-cache"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_no_file_lies_about():
    assert {place.name for place in (ROOT / "graphpass").iterdir() if place.is_file()} == LOOSE
    for room in (ROOT / "passes").iterdir():
        assert room.is_dir() or room.name in {"__init__.py", "catalogue.py"}


DEFINED = defined_passes()


@pytest.mark.parametrize("name", sorted(PASSES.keys() | DEFINED.keys()))
def test_the_catalogue_lists_the_passes_of_the_library(name):
    assert PASSES.get(name) == DEFINED.get(name)
    assert get_pass(name).__module__ == PASSES[name]


def test_passes_of_the_catalogue_are_known_by_name():
    assert set(graphpass.pass_names()) >= PASSES.keys()
