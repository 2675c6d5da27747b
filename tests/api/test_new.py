"""Packages of `graphpass new-pass` and `new-target`: they install, and their tests pass."""

import os
import subprocess
import sys

import pytest

from graphpass.api.new import new_pass, new_target


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


@pytest.mark.parametrize(("new", "command"), [(new_pass, "explain my-own"), (new_target, "targets")])
def test_the_readme_names_a_command(tmp_path, new, command):
    readme = (new("my-own", tmp_path / "made") / "README.md").read_text()
    assert readme.splitlines()[-1].strip() == f"graphpass {command}"
