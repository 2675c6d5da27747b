"""Rooms: imports run downwards, no file lies loose, dialects alone know native operators, one catalogue of passes."""

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
LOOSE = {
    f"{name}.py"
    for name in ("__init__", "__main__", "error_catalog", "errors", "io", "machine", "printable", "progress")
}
LOOSE.add("py.typed")


def defined_passes():
    """Return the module of each class that gives itself a name, by that name."""
    found = {}
    for file in sorted((ROOT / "passes").rglob("*.py")):
        module = ".".join(("graphpass", *file.relative_to(ROOT).with_suffix("").parts))
        for owner in ast.parse(file.read_text()).body:
            for item in owner.body if isinstance(owner, ast.ClassDef) else ():
                given = item.value if isinstance(item, ast.Assign | ast.AnnAssign) else None
                target = ast.unparse(item).partition("=")[0].partition(":")[0].strip()
                if target == "name" and isinstance(given, ast.Constant):
                    found[given.value] = module
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


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names


def test_dialects_alone_know_native_operators():
    rooms = ("passes", "graphpass/analysis", "graphpass/targets")
    native = {
        (str(path.relative_to(ROOT)), name)
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        for name in imported(path)
        if name.startswith(("onnx.helper", "openvino.opset"))
    }
    assert not native, "make operators with model.rewriter()"


def test_no_hierarchy_is_deeper_than_three_classes():
    bases: dict[str, list[str]] = {}
    for room in ("graphpass", "passes", "cli"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                    bases[node.name] = [
                        base.id for base in named if isinstance(base, ast.Name) and base.id != node.name
                    ]

    def depth(name: str) -> int:
        return 1 + max((depth(base) for base in bases[name] if base in bases), default=0)

    assert [name for name in bases if depth(name) > 3] == []
