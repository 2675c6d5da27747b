"""Promises of the README and of hand-written pages: their Python runs, and they show what the program prints."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.models import export, fixtures, vision

import graphpass

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    page.name: page.read_text("utf-8")
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    if "```" in page.read_text("utf-8")
}


@pytest.fixture
def checkout(tmp_path):
    """A folder in which the pages' relative paths lead to the fixtures."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "fixtures").symlink_to(fixtures())
    (tmp_path / "build" / "vision").symlink_to(vision("qwen2_vl").parents[1])
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    return tmp_path


def run(checkout, *command):
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if "```python" in text])
def test_python_blocks_run_in_order(checkout, page):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)
    assert len(blocks) == PAGES[page].count("```python")
    script = checkout / "blocks.py"
    script.write_text("\n".join(blocks))
    done = run(checkout, str(script))
    assert done.returncode == 0, done.stderr
    if page == "python-api.md":
        assert graphpass.load(checkout / "demo-output" / "renamed").ov_model.get_friendly_name() == "my qwen"


SHOWN = [
    block
    for text in PAGES.values()
    for block in re.findall(r"^```console\n\$ graphpass (.*?)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_shown_output_matches_the_command(checkout, command, shown):
    done = run(checkout, "-m", "graphpass.cli", *shlex.split(command))
    assert done.returncode == (1 if "does not hold" in shown else 0), done.stderr
    printed = _without_measurements(done.stdout)
    for line in _without_measurements(shown).splitlines():
        assert line in printed


def test_the_demo_ends_as_shown(checkout):
    pytest.importorskip("openvino_genai")
    (block,) = re.findall(r"^```console\n\$ python (.*?)\n(.*?)^```", PAGES["README.md"], re.DOTALL | re.MULTILINE)
    command, shown = block
    convert = next(command for command, _ in SHOWN if command.startswith("convert"))
    done = run(checkout, "-m", "graphpass.cli", *shlex.split(convert), "--no-verify", "--no-tokenizer")
    assert done.returncode == 0, done.stderr
    for file in export("llama", "ov-stateful").glob("openvino_*tokenizer.*"):
        shutil.copy(file, checkout / "demo-output")
    done = run(checkout, *shlex.split(command))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(shown)


def _without_measurements(text: str) -> str:
    return re.sub(r"\d+\.\d{3} s|\d\.\d+e[-+]\d+|openvino 20\S+?(?=,|$)", "#", text, flags=re.MULTILINE)


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 150
