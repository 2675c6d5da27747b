"""The README's promises: its Python runs, its tables list what there is, its output is what the program prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.models import fixtures

import graphpass

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


@pytest.fixture
def checkout(tmp_path):
    """A folder in which the README's relative paths lead to the fixtures."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "fixtures").symlink_to(fixtures())
    return tmp_path


def test_python_blocks_run_in_order(checkout):
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert len(blocks) == README.count("```python")
    script = checkout / "readme.py"
    script.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, str(script)], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert graphpass.load(checkout / "demo-output" / "renamed").ov_model.get_friendly_name() == "my qwen"


SHOWN = re.findall(r"^```console\n\$ graphpass (.*?)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_shown_output_is_what_the_command_prints(checkout, command, shown):
    environment = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "graphpass.cli", *command.split()],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (1 if "does not hold" in shown else 0), done.stderr
    printed = _without_measurements(done.stdout)
    for line in _without_measurements(shown).splitlines():
        assert line in printed


def _without_measurements(text: str) -> str:
    return re.sub(r"\d+\.\d{3} s|\d\.\d+e[-+]\d+|openvino 20\S+?(?=,|$)", "#", text, flags=re.MULTILINE)


def test_passes_are_all_listed():
    table = README[README.index("### Passes") : README.index("### Proof")]
    assert sorted(re.findall(r"^\| `([a-z0-9-]+)`", table, re.MULTILINE)) == sorted(
        name for name in graphpass.pass_names() if name not in {"rename"}
    )
