"""Digests of weights, and those that are remembered."""

import hashlib
import os
import threading

import pytest

from graphpass.errors import ReadError
from graphpass.storage import digests
from graphpass.storage.digests import computing_ahead, digests_of
from graphpass.storage.weight_file import FileRange, WeightFile

pytestmark = pytest.mark.usefixtures("digest_memory")

CONTENT = bytes(range(256)) * 9000


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(CONTENT)
    os.utime(path, (1, 1))
    return path


def places(path):
    found = WeightFile.of(path)
    return [
        FileRange(found, 0, 2_200_000),
        FileRange(found, 100, 0),
        FileRange(found, 5000, 70_000),
        FileRange(found, 0, 2_200_000),
    ]


def expected(path):
    return {
        place: hashlib.sha256(path.read_bytes()[place.offset : place.offset + place.length]).hexdigest()
        for place in places(path)
    }


def test_digests_are_of_the_bytes(file):
    assert digests_of(places(file)) == expected(file)


def test_computed_digests_are_remembered(file, digest_memory, monkeypatch):
    first = digests_of(places(file)[:2])
    assert [path.suffix for path in digest_memory.iterdir()] == [".json"]
    monkeypatch.setattr(digests, "_computed", lambda *_: pytest.fail("read again"))
    assert digests_of(places(file)[:2]) == first
    with pytest.raises(pytest.fail.Exception):
        digests_of(places(file))


@pytest.mark.parametrize("change", ["time", "size", "file"])
def test_digests_of_another_file_are_not_used(file, change):
    digests_of(places(file))
    if change == "file":
        (file.parent / "new").write_bytes(CONTENT[::-1])
        os.replace(file.parent / "new", file)
    else:
        file.write_bytes(CONTENT[::-1] + (b"more" if change == "size" else b""))
    os.utime(file, (2, 2) if change == "time" else (1, 1))
    assert digests_of(places(file)) == expected(file)


def test_a_file_written_to_just_now_is_not_remembered(file, digest_memory):
    os.utime(file)
    digests_of(places(file))
    assert not digest_memory.exists()


def test_a_damaged_digest_cache_is_ignored(file, digest_memory):
    digests_of(places(file))
    for content in (b"", b"[]", b'{"file": 1}', b"\xff"):
        next(digest_memory.iterdir()).write_bytes(content)
        assert digests_of(places(file)) == expected(file)


def test_digests_without_a_cache_folder_are_computed(file, digest_memory):
    digest_memory.parent.write_text("a file")
    assert digests_of(places(file)) == expected(file)


def test_a_file_changed_meanwhile(file):
    asked = places(file)
    file.write_bytes(CONTENT[:100])
    with pytest.raises(ReadError, match="GP110"):
        digests_of(asked)


def test_only_so_many_are_remembered(tmp_path, digest_memory, monkeypatch):
    monkeypatch.setattr(digests, "_REMEMBERED", 3)
    for number in range(5):
        path = tmp_path / str(number)
        path.write_bytes(CONTENT)
        os.utime(path, (1, 1))
        digests_of(places(path))
    assert len(list(digest_memory.iterdir())) == 3


def wait_for_digests():
    for thread in threading.enumerate():
        if thread.name == digests._THREAD:
            thread.join()


def test_digests_computed_ahead_are_found(file, monkeypatch):
    monkeypatch.setattr(digests, "_LARGE", 1)
    with computing_ahead(places(file)):
        wait_for_digests()
    monkeypatch.setattr(digests, "_computed", lambda *_: pytest.fail("read again"))
    assert digests_of(places(file)) == expected(file)


def test_digests_ahead_of_a_file_changed_meanwhile_are_dropped(file, digest_memory, monkeypatch):
    monkeypatch.setattr(digests, "_LARGE", 1)
    ranges = places(file)
    file.write_bytes(CONTENT[::-1])
    with computing_ahead(ranges):
        wait_for_digests()
    assert not digest_memory.exists()


def test_digests_ahead_are_dropped_after_the_context(file, digest_memory, monkeypatch):
    monkeypatch.setattr(digests, "_LARGE", 1)
    ended = threading.Event()
    digest = digests._digest
    monkeypatch.setattr(digests, "_digest", lambda *args: ended.wait() and digest(*args))
    with computing_ahead(places(file)):
        pass
    ended.set()
    wait_for_digests()
    assert not digest_memory.exists()
