"""python -m graphpass.testing writes the results into cases."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from graphpass.testing.__main__ import command

CASE = """// RUN: fuse-functions
// DIALECT: onnx

// ----- a product
%x = Parameter : f32[n, 4]
%gate = Sigmoid(%x)
%y = Multiply(%x, %gate)
Result(%y) {name=y}
// AFTER
Result(%x) {name=y}
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "case.graph").write_text(CASE)
    return tmp_path / "case.graph"


def test_results_are_written_once(file):
    done = CliRunner().invoke(command, [str(file)])
    assert (done.exit_code, done.output) == (0, "")
    written = file.read_text()
    assert written != CASE
    assert "Sigmoid" not in written.partition("// AFTER")[2]
    assert CliRunner().invoke(command, [str(file)]).exit_code == 0
    assert file.read_text() == written


def test_errors_name_the_file(file):
    file.write_text(CASE.replace("fuse-functions", "make-stateful"))
    done = CliRunner().invoke(command, [str(file)])
    assert done.exit_code == 1
    assert f"Error: {file}: GP" in done.output
    assert CliRunner().invoke(command, []).exit_code == 2


def test_the_module_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "graphpass.testing", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: python -m graphpass.testing ")
