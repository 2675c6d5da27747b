"""Blocks copied by direct I/O."""

import os
from threading import Event

import pytest

from graphpass.storage.block_copy import copy_past_cache


@pytest.fixture
def opened(tmp_path):
    (tmp_path / "from").write_bytes(content := os.urandom(50_000))
    source = os.open(tmp_path / "from", os.O_RDONLY)
    try:
        target = os.open(tmp_path / "to", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    except OSError:
        pytest.skip("the file system has no direct I/O")
    yield source, target, content
    os.close(source)
    os.close(target)


def test_all_blocks_and_the_rest_of_the_last(opened, tmp_path):
    source, target, content = opened
    assert copy_past_cache(source, len(content), target)
    assert (tmp_path / "to").read_bytes() == content


def test_a_stopped_copy_ends_early(opened, tmp_path):
    source, target, content = opened
    stopped = Event()
    stopped.set()
    assert not copy_past_cache(source, len(content), target, stopped)
    assert not (tmp_path / "to").read_bytes()


def test_a_source_that_is_too_short(opened):
    source, target, _ = opened
    with pytest.raises(OSError, match="truncated: expected 60000 bytes, got 49152"):
        copy_past_cache(source, 60_000, target)
