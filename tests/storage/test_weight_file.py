"""Weight files: changes, links, and ranges of memory maps."""

import mmap
import os
import sys

import numpy
import pytest

from graphpass.errors import ReadError, UsageError
from graphpass.storage.weight_file import (
    FileRange,
    MappedWeights,
    WeightFile,
    check_unchanged,
    lies_with,
    link_weights,
    release,
)


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "weights.bin"
    made.write_bytes(bytes(range(200)))
    os.utime(made, (1, 1))
    return made


def replaced(path):
    new = path.with_name("new")
    new.write_bytes(path.read_bytes())
    os.utime(new, (1, 1))
    new.replace(path)


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(bytes(200)), replaced, lambda path: path.unlink()])
def test_changes_since_the_model_was_read_are_found(path, change):
    file = WeightFile.of(path)
    assert file.unchanged
    check_unchanged([file])
    change(path)
    assert not file.unchanged
    with pytest.raises(ReadError, match="GP110"):
        check_unchanged([file])


def test_links_share_the_file_if_it_is_the_one_read(path, tmp_path):
    file = WeightFile.of(path)
    link_weights(file, tmp_path / "link")
    assert file.is_same(tmp_path / "link")
    with pytest.raises(UsageError, match="GP230"):
        link_weights(file, tmp_path / "link")
    replaced(path)
    with pytest.raises(ReadError, match="GP110"):
        link_weights(file, tmp_path / "other")


def test_weights_lie_with_the_model_or_the_target_of_its_link(tmp_path):
    for name in ("blobs", "snapshot", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "w").touch()
    (tmp_path / "blobs" / "m").touch()
    (tmp_path / "snapshot" / "m").symlink_to(tmp_path / "blobs" / "m")
    (tmp_path / "snapshot" / "link").symlink_to(tmp_path / "elsewhere" / "w")
    places = ("blobs/w", "snapshot/w", "elsewhere/w", "snapshot/link")
    assert [lies_with(tmp_path / name, tmp_path / "snapshot" / "m") for name in places] == [True, True, False, False]
    assert not lies_with(tmp_path / "snapshot" / "w", tmp_path / "blobs" / "m")


def test_the_ends_of_a_range_are_read(path):
    assert FileRange(WeightFile.of(path), 10, 100).ends(2) == bytes([10, 11, 108, 109])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_constants_are_found_in_memory_maps(path):
    file = WeightFile.of(path)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        elements = numpy.frombuffer(mapped, numpy.uint8)
        start = elements.ctypes.data
        weights = MappedWeights([file])
        assert weights.find(start + 8, 16) == FileRange(file, 8, 16)
        assert weights.find(start, 200) == FileRange(file, 0, 200)
        assert weights.find(start, 201) is None
        assert weights.find(start - 1, 4) is None
        release([file])
        assert elements[7] == 7
        del elements
    assert MappedWeights([]).find(start, 1) is None
