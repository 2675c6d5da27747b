"""The wheel and the sdist hold what the checkout holds; `make wheel` tries them in a new environment."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: What only a checkout needs.
UNSHIPPED = {".gitignore"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist, made of the files that git has, or would have."""
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", output, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = output.glob("*.whl"), output.glob("*.tar.gz")
    return wheel, sdist, done.stdout + done.stderr


def tracked():
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).exists()]


def installed(name):
    """Where a file of the source trees installs."""
    return name if name.startswith("graphpass/") else f"graphpass/{name}"


def test_the_wheel_has_each_file_of_the_source_trees(built):
    expected = {installed(name) for name in tracked() if name.startswith(("graphpass/", "passes/", "cli/"))}
    found = {name for name in zipfile.ZipFile(built[0]).namelist() if ".dist-info/" not in name}
    assert found == expected


def test_the_sdist_has_each_file_of_the_checkout(built):
    with tarfile.open(built[1]) as archive:
        found = {entry.name.partition("/")[2] for entry in archive if entry.isfile()}
    assert set(tracked()) - found == UNSHIPPED


def test_the_build_warns_of_nothing(built):
    lines = [line for line in built[2].splitlines() if "warning" in line.lower() or "deprecat" in line.lower()]
    assert [line for line in lines if "byte-compiling is disabled" not in line] == []
