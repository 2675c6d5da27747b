"""CONTRIBUTING.md: its example runs, with the counts that it states; docs/design.md lists the checked rooms."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.plugins import distribution

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
FILES = dict(re.findall(r"^`(\S+\.py)`\n\n```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))

#: Lets modules of the library be found in a second folder, too.
CONFTEST = """
import importlib
for room in {rooms}:
    importlib.import_module(f"graphpass.passes.{{room}}").__path__.append(f"{folder}/passes/{{room}}")
"""


@pytest.fixture
def checkout(tmp_path):
    """A folder with the files of the example, in which its pass is listed in a catalogue."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    passes = [Path(name) for name in FILES if name.startswith("passes/")]
    rooms = [path.parent.name for path in passes]
    catalogue = {path.stem.replace("_", "-"): f"graphpass.passes.{path.parent.name}.{path.stem}" for path in passes}
    (tmp_path / "conftest.py").write_text(CONFTEST.format(rooms=rooms, folder=tmp_path))
    (tmp_path / "example_catalogue.py").write_text(f"PASSES = {catalogue!r}")
    return distribution(tmp_path, "example", {"graphpass.catalogues": {"example": "example_catalogue:PASSES"}})


def test_the_example_runs(checkout):
    (test,) = [name for name in FILES if name.startswith("tests/")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", test],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_example_has_the_stated_length():
    counted = re.search(
        r"takes (\d+) lines, of which (\d+) are\s+code besides imports; .* test of (\d+) lines", TEXT, re.DOTALL
    )
    written, test = FILES.values()
    code = re.sub(r'""".*?"""', "", written, flags=re.DOTALL)
    code_lines = [line for line in code.splitlines() if line.strip() and "import" not in line]
    assert tuple(map(int, counted.groups())) == tuple(map(len, (written.splitlines(), code_lines, test.splitlines())))


def test_the_example_is_in_good_style(checkout):
    ruff = [sys.executable, "-m", "ruff"]
    for command in ([*ruff, "check"], [*ruff, "format", "--check"]):
        done = subprocess.run(
            [*command, "--no-cache", "--config", str(ROOT / "pyproject.toml"), *FILES],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_the_patterns_are_patterns():
    (block,) = re.findall(r"^```python\n(from graphpass.analysis.pattern.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    exec(block, {})


def test_the_page_lists_the_checked_rooms():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "rooms"]
    design = (ROOT / "docs" / "design.md").read_text("utf-8")
    assert re.findall(r"^    (\w+) {2,}", design, re.MULTILINE) == layers


def test_the_commands_exist_in_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", TEXT)) <= targets
    assert targets - set(re.findall(r"^\| `make ([a-z-]+)`", TEXT, re.MULTILINE)) == {"help", "clean"}
