"""Bundles: a case with versions, command and log, the same bytes every time."""

import json
import zipfile

import pytest

from graphpass.errors import ReadError, UsageError
from graphpass.jobs.reduce.bundle import read_case, replay_bundle, write_bundle
from graphpass.jobs.reduce.failing import Failing

TEXT = """// RUN: make-stateful
// DIALECT: onnx 21
// KEEPS: GP301
%x = Parameter : f32[n, 12]
%y = Relu(%x)
Result(%y) {name=y}
"""


def test_a_bundle_is_read_and_replayed(tmp_path):
    case = Failing.parse(TEXT)
    write_bundle(case, tmp_path / "a.zip")
    first = (tmp_path / "a.zip").read_bytes()
    write_bundle(case, tmp_path / "a.zip")
    assert (tmp_path / "a.zip").read_bytes() == first
    assert str(read_case(tmp_path / "a.zip")) == str(case)
    assert replay_bundle(tmp_path / "a.zip").startswith("GP301: pass make-stateful: ")
    with zipfile.ZipFile(tmp_path / "a.zip") as file:
        assert set(file.namelist()) == {"README.txt", "case.graph", "log.txt", "versions.json"}
        assert file.read("case.graph").decode() == TEXT
        assert {"graphpass", "onnx", "openvino"} <= json.loads(file.read("versions.json")).keys()
        assert "\nfails: GP301: " in file.read("log.txt").decode()


def test_a_case_that_does_not_fail_is_not_bundled(tmp_path):
    with pytest.raises(UsageError) as error:
        write_bundle(Failing.parse(TEXT.replace("make-stateful", "fuse-functions")), tmp_path / "a.zip")
    assert error.value.id == "GP275"
    assert not (tmp_path / "a.zip").exists()


def test_a_case_is_read_from_its_text(tmp_path):
    (tmp_path / "case.graph").write_text(TEXT)
    assert str(read_case(tmp_path / "case.graph")) == TEXT


@pytest.mark.parametrize(("content", "id_"), [(b"\xff\xfe", "GP120"), (None, "GP101")])
def test_other_files_are_refused(tmp_path, content, id_):
    if content is not None:
        (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(ReadError) as error:
        read_case(tmp_path / "a.zip")
    assert error.value.id == id_


def test_an_archive_without_a_case_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("other", "text")
    with pytest.raises(ReadError, match="neither a bundle nor a case"):
        read_case(tmp_path / "a.zip")
