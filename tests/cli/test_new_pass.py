"""graphpass new-pass and new-target write files that pass the linter."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import in_process


@pytest.mark.parametrize("kind", ["pass", "target"])
def test_written_files_pass_the_linter(capfd, tmp_path, kind):
    done = in_process(capfd, f"new-{kind}", "my-own", "-o", tmp_path / "made")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == str(tmp_path / "made")
    assert in_process(capfd, f"new-{kind}", "my-own", "-q", "-o", tmp_path / "quiet").out == f"{tmp_path / 'quiet'}\n"
    config = Path(__file__).resolve().parents[2] / "pyproject.toml"
    for command in (["check", "--extend-ignore", "D103"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", "--config", config, tmp_path / "made"]
        found = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout
