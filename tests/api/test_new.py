"""Packages of `graphpass new-pass` and `new-target`: they install, and their tests pass."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import in_process

from graphpass.api.new import new_pass, new_target
from graphpass.errors import UsageError


def pytest_of(package, tmp_path, *arguments):
    """Install a package into a folder of its own, and run its tests."""
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", site, package], check=True)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=package,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_new_pass_installs_and_its_tests_pass(tmp_path):
    done = pytest_of(new_pass("fuse-my-swish", tmp_path / "made"), tmp_path)
    assert "6 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_a_new_target_installs_and_its_tests_pass(tmp_path):
    done = pytest_of(new_target("mine", tmp_path / "made"), tmp_path, "-k", "llama or lfm2")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_pass_and_its_test_are_short(tmp_path):
    made = new_pass("fuse-my-swish", tmp_path / "made")
    for file, most in (("graphpass_fuse_my_swish/fuse_my_swish.py", 15), ("tests/test_fuse_my_swish.py", 12)):
        code = re.sub(r'""".*?"""', "", (made / file).read_text(), flags=re.DOTALL)
        lines = [line for line in code.splitlines() if line.strip() and "import" not in line]
        assert len(lines) <= most


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


@pytest.mark.parametrize(("new", "command"), [(new_pass, "explain my-own"), (new_target, "targets")])
def test_the_readme_names_a_command(tmp_path, new, command):
    readme = (new("my-own", tmp_path / "made") / "README.md").read_text()
    assert readme.splitlines()[-1].strip() == f"graphpass {command}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Fuse", "is not in kebab-case"),
        ("make-stateful", "pass make-stateful exists"),
        ("x", "made exists"),
        ("class", "is a keyword"),
    ],
)
def test_bad_names_are_refused(tmp_path, name, words):
    (tmp_path / "made").mkdir()
    with pytest.raises(UsageError, match=f"GP276: .*{words}"):
        new_pass(name, tmp_path / "made")
