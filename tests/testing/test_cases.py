"""Cases of a pass in a file."""

import subprocess
import sys

import pytest

from graphpass.testing import read_cases
from graphpass.testing.cases import update

GRAPH = """
%x = Parameter : f32[n, 4]
%sum = Add(%x, 1.0)
%y = Relu(%sum)
Result(%y) {name=y}
"""


CASE = f"""// RUN: to-openvino
// DIALECT: onnx
// SIZES: n=2

// ----- one
{GRAPH}// AFTER
{GRAPH.replace("f32[n, 4]", "f32[?, 4]")}
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Add(%x, 1.0)", "Add(%x, 2.0)", "--- expected"),
        ("// AFTER", "// OUTCOME: 9 operators\n// AFTER", "the outcome is '5 operators'"),
        ("// AFTER", "// NOTE: none\n// AFTER", "the notes are "),
        ("// AFTER", "// ERROR: GP366 no\n// AFTER", "ends without GP366 no"),
        ("// DIALECT: onnx", "// DIALECT: openvino", "ends with GP301"),
    ],
)
def test_a_different_case(tmp_path, old, new, words):
    file = tmp_path / "case.graph"
    file.write_text(CASE)
    read_cases(tmp_path)[0].check()
    file.write_text(new.join(CASE.rsplit(old, 1)))
    with pytest.raises(AssertionError) as raised:
        read_cases(file)[0].check()
    assert words in str(raised.value)


def test_a_case_is_updated(tmp_path):
    file = tmp_path / "case.graph"
    file.write_text(f"{CASE}\n// ----- two\n{GRAPH}")
    update(file)
    assert [case.title for case in read_cases(file)] == ["one", "two"]
    for case in read_cases(file):
        case.check()


def test_a_file_without_cases_is_left_alone(tmp_path):
    file = tmp_path / "notes.md"
    file.write_text("notes  \n\n")
    done = subprocess.run(
        [sys.executable, "-m", "graphpass.testing", file], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {file}: GP270: the file has no case")
    assert file.read_text() == "notes  \n\n"
    done = subprocess.run(
        [sys.executable, "-m", "graphpass.testing", tmp_path / "none"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.startswith("Usage: python -m graphpass.testing ")) == (2, True)
