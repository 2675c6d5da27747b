"""Copies of files, past the cache of files where they are large."""

import os

import pytest

from graphpass.storage import block_copy, kernel_copy
from graphpass.storage.kernel_copy import copy_file


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(kernel_copy, "LARGE", 1)
    monkeypatch.setattr(block_copy, "_BLOCK", 16384)
    monkeypatch.setattr(kernel_copy, "clone", lambda source, target: False)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 16384, 16385, 100_000])
def test_copies_are_the_same_bytes(tmp_path, size):
    content = os.urandom(size)
    (tmp_path / "from").write_bytes(content)
    copy_file(tmp_path / "from", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == content


@pytest.mark.parametrize("how", ["open", "pwrite"])
def test_a_file_system_without_kernel_copies(tmp_path, monkeypatch, how):
    content = os.urandom(50_000)
    (tmp_path / "from").write_bytes(content)
    real = getattr(os, how)

    def refused(*arguments):
        if how == "pwrite" or arguments[1] & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(*arguments)

    monkeypatch.setattr(os, how, refused)
    copy_file(tmp_path / "from", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == content


def test_partial_writes(tmp_path, monkeypatch):
    content = os.urandom(50_000)
    (tmp_path / "from").write_bytes(content)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda target, data, offset: real(target, data[:4096], offset))
    copy_file(tmp_path / "from", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == content


def test_a_file_truncated_meanwhile(tmp_path, monkeypatch):
    (tmp_path / "from").write_bytes(bytes(50_000))
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda source, into, offset: real(source, into, offset) if offset < 20_000 else 0)
    with pytest.raises(OSError, match="a file of weights was truncated: expected 50000 bytes, got 32768"):
        copy_file(tmp_path / "from", tmp_path / "to")
