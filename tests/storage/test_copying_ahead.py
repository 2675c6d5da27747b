"""Copies that a thread makes while models are compared."""

import os
from pathlib import Path

import pytest

from graphpass.storage import block_copy, copying_ahead as module
from graphpass.storage.copying_ahead import copying_ahead, take_copy
from graphpass.storage.kernel_copy import copy_file
from graphpass.storage.weight_file import WeightFile


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(module, "LARGE", 1)
    monkeypatch.setattr(block_copy, "_BLOCK", 16384)


@pytest.fixture
def source(tmp_path):
    if not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no files without a name")
    file = tmp_path / "from"
    file.write_bytes(os.urandom(50_000))
    return file


def test_a_copy_gets_the_name_of_the_new_file(source, tmp_path):
    with copying_ahead([WeightFile.of(source)], tmp_path):
        copy_file(source, tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == source.read_bytes()
    assert not (tmp_path / "to").samefile(source)


def test_a_copy_that_is_not_taken_leaves_no_file(source, tmp_path):
    with copying_ahead([WeightFile.of(source)], tmp_path):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["from"]


def test_files_that_changed_are_copied_again(source, tmp_path):
    with copying_ahead([WeightFile.of(source)], tmp_path):
        source.write_bytes(b"new content")
        copy_file(source, tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == b"new content"


def test_other_files_have_no_copy(source, tmp_path):
    (other := tmp_path / "other").write_bytes(b"other")
    with copying_ahead([WeightFile.of(source)], tmp_path):
        assert not take_copy(other, tmp_path / "to")
    assert not take_copy(source, tmp_path / "to")


def test_further_copies_of_a_file_are_files_of_their_own(source, tmp_path):
    with copying_ahead([WeightFile.of(source)], tmp_path):
        copy_file(source, tmp_path / "to")
        copy_file(source, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == source.read_bytes()
    assert not (tmp_path / "again").samefile(tmp_path / "to")


def test_existing_files_are_kept(source, tmp_path):
    (tmp_path / "to").write_bytes(b"old")
    with copying_ahead([WeightFile.of(source)], tmp_path), pytest.raises(FileExistsError):
        copy_file(source, tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == b"old"


def test_errors_of_the_thread_are_raised_where_the_copy_is_taken(source, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "reserve", fails)
    monkeypatch.setattr(module, "clone", lambda source, target: False)
    with copying_ahead([WeightFile.of(source)], tmp_path), pytest.raises(OSError, match="No space left"):
        copy_file(source, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_file_systems_without_nameless_files(source, tmp_path, monkeypatch):
    real = os.open

    def refuses(path: Path, flags: int, *rest: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuses)
    with copying_ahead([WeightFile.of(source)], tmp_path):
        copy_file(source, tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == source.read_bytes()
