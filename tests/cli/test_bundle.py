"""graphpass bundle packs a failing case, and runs it again."""

import zipfile

import pytest
from support.commands import in_process

from graphpass.io import save
from graphpass.testing import parse_model

TEXT = "%x = Parameter : f32[n, 4]\n%y = Exp(%x)\nResult(%y) {name=y}"
CASE = f"// RUN: make-stateful\n// DIALECT: onnx 21\n// KEEPS: GP301\n{TEXT}\n"


@pytest.fixture
def folder(tmp_path):
    save(parse_model(TEXT), tmp_path / "m.onnx")
    (tmp_path / "case.graph").write_text(CASE)
    return tmp_path


@pytest.mark.parametrize("of", [["case.graph"], ["m.onnx", "-p", "make-stateful", "--keeps", "GP301"]])
def test_a_case_or_a_model_is_packed_and_replayed(capfd, folder, of):
    packed = folder / "m.zip"
    done = in_process(capfd, "bundle", folder / of[0], *of[1:], "-o", packed)
    assert done == (0, f"{packed}\n", "")
    assert "case.graph" in zipfile.ZipFile(packed).namelist()
    done = in_process(capfd, "bundle", "--replay", packed)
    assert (done.code, done.out[:14]) == (0, "fails: GP301: ")


def test_a_case_that_no_longer_fails_has_exit_code_1(capfd, folder):
    (folder / "case.graph").write_text(CASE.replace("make-stateful", "fuse-functions"))
    assert in_process(capfd, "bundle", "--replay", folder / "case.graph") == (1, "does not fail\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--replay", "-o", "m.zip"], "--replay accepts only a bundle, without -o and -p"),
        (["--replay", "-p", "fuse-functions"], "--replay accepts only a bundle, without -o and -p"),
        ([], "Missing option '-o' / '--output'"),
    ],
)
def test_wrong_options_are_refused(capfd, folder, arguments, words):
    done = in_process(capfd, "bundle", folder / "case.graph", *arguments)
    assert done.code == 2
    assert words in done.err
