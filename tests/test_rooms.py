"""Rooms: imports run downwards, no file lies loose, dialects alone know native operators, tests mirror modules."""

import ast
import collections
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOOSE = {
    f"{name}.py"
    for name in (
        "__init__",
        "__main__",
        "error_catalog",
        "errors",
        "io",
        "machine",
        "model_files",
        "printable",
        "progress",
    )
}
LOOSE.add("py.typed")

#: Tests of a room that are of several modules together. Those of several rooms are in tests/ itself.
ACROSS_MODULES = {
    "api/test_commands_as_functions.py",
    "cli/test_bad_input.py",
    "passes/test_loop_bodies.py",
    "passes/test_text.py",
    "reports/test_reports_fit_a_screen.py",
    "targets/test_against_runtimes.py",
    "targets/test_plugin.py",
    "verify/test_other_tools.py",
    "verify/test_rewritings.py",
}


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


def test_no_file_lies_outside_of_rooms():
    assert {place.name for place in (ROOT / "graphpass").iterdir() if place.is_file()} == LOOSE
    for room in (ROOT / "passes").iterdir():
        assert room.is_dir() or room.name in {"__init__.py", "catalogue.py"}


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


def test_public_classes_of_modules_have_names_of_their_own():
    places = collections.defaultdict(list)
    for room in ("graphpass", "passes", "cli"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


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


def modules() -> set[str]:
    """Return the paths of modules and packages; a module that each dialect has is in `dialects` as well."""
    paths = {
        path.relative_to(root)
        for root, folder in ((ROOT / "graphpass", "."), (ROOT, "passes"), (ROOT, "cli"))
        for path in (root / folder).rglob("*.py")
    }
    names = {str(path.parent if path.name == "__init__.py" else path.with_suffix("")) for path in paths} - {"."}
    return names | {f"dialects/{name.rpartition('/')[2]}" for name in names if name.startswith("dialects/")}


def modules_of(test: Path, names: set[str]) -> list[str]:
    """Return the names of modules that a test may be of, the longest first; ``test_<module>_<aspect>`` begins so."""
    words = test.stem.split("_")[1:]
    tested = [str(test.parent / "_".join(words[:count])) for count in range(len(words), 0, -1)]
    return [name for name in tested if name in names]


def test_modules_have_tests() -> None:
    """Each module with functions has a test at its path, a pass also as a graph; both dialects may share a test."""
    root = ROOT / "tests"
    names = modules()
    tested = {str(path.relative_to(root).with_suffix("")) for path in root.rglob("*.graph")}
    for path in root.rglob("test_*.py"):
        tested.update(modules_of(path.relative_to(root), names)[:1])
    untested = set()
    for folder, base in (("graphpass", ROOT / "graphpass"), ("passes", ROOT), ("cli", ROOT)):
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(base).with_suffix(""))
            shared = f"dialects/{path.stem}" if name.startswith("dialects/") else name
            has_functions = any(isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(path.read_text())))
            if has_functions and path.stem != "__init__" and not {name, shared} & tested:
                untested.add(name)
    assert untested == set()


def test_tests_mirror_modules() -> None:
    """`passes/caches/pack.py` is tested by `tests/passes/caches/test_pack.py` or `test_pack_<aspect>.py`."""
    names = modules()
    rooms = {ROOT / "tests" / name.partition("/")[0] for name in names}
    tests = {path.relative_to(ROOT / "tests") for room in rooms for path in room.rglob("test_*.py")}
    assert {str(test) for test in tests if not modules_of(test, names)} == ACROSS_MODULES
