"""Environments that run OpenVINO's GPU plugin on machines without a GPU."""

import subprocess

import pytest

from graphpass.errors import UsageError
from graphpass.runtime.devices.stand_in import ENVIRONMENT, entered, stand_in


@pytest.fixture
def folder(tmp_path, monkeypatch):
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$FAKE $1 ${PYTHONPATH-unset}"\n')
    python.chmod(0o755)
    (tmp_path / "env.sh").write_text("export FAKE=variable\n")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/mine")
    return tmp_path


def test_the_environment_sets_variables_before_its_python_starts(folder):
    assert stand_in() == folder
    done = subprocess.run([*entered(folder), "argument"], capture_output=True, text=True, check=True)
    assert done.stdout == "variable argument unset\n"


@pytest.mark.parametrize("missing", ["env.sh", "venv/bin/python"])
def test_an_incomplete_environment_is_refused(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(UsageError, match=f"which has no {missing}") as error:
        stand_in()
    assert error.value.id == "GP228"


def test_without_the_variable_there_is_none(folder, monkeypatch):
    monkeypatch.delenv(ENVIRONMENT)
    assert stand_in() is None
    monkeypatch.setenv(ENVIRONMENT, "")
    assert stand_in() is None
