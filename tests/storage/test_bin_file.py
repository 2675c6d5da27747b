"""The layout of a ``.bin`` file: copied ranges, then new constants."""

import numpy
import pytest

from graphpass.errors import UsageError
from graphpass.storage.bin_file import BinFile
from graphpass.storage.weight_file import FileRange, WeightFile

CONTENT = numpy.arange(400_000, dtype=numpy.uint32).view(numpy.uint8)[:400_000].tobytes()


@pytest.fixture
def file(tmp_path):
    (tmp_path / "weights.bin").write_bytes(CONTENT)
    return WeightFile.of(tmp_path / "weights.bin")


def new(*numbers):
    return numpy.array(numbers, numpy.uint8)


@pytest.mark.parametrize(
    "ranges", [[(100, 50), (70_000, 10)], [(100, 50), (200_000, 10)], [(200_000, 10)], [(0, 10), (390_000, 10)]]
)
def test_ranges_keep_their_bytes_and_their_place_in_a_page(file, tmp_path, ranges):
    used = [FileRange(file, *each) for each in ranges]
    made = BinFile(used, share=False)
    made.write(tmp_path / "out.bin")
    written = (tmp_path / "out.bin").read_bytes()
    assert len(written) < len(CONTENT)
    for each in used:
        offset = made.offset_of(each)
        assert offset % 4096 == each.offset % 4096
        assert written[offset : offset + each.length] == CONTENT[each.offset : each.offset + each.length]


def test_small_gaps_are_copied_and_large_ones_left_out(file):
    near = BinFile([FileRange(file, 100, 50), FileRange(file, 60_000, 10)], share=False)
    assert near.offset_of(FileRange(file, 60_000, 10)) == 60_000
    far = BinFile([FileRange(file, 100, 50), FileRange(file, 200_000, 10)], share=False)
    assert far.offset_of(FileRange(file, 200_000, 10)) < 8192
    with pytest.raises(AssertionError, match="was not planned"):
        far.offset_of(FileRange(file, 100_000, 4))


def test_new_constants_are_aligned_and_equal_ones_written_once(file, tmp_path):
    made = BinFile([FileRange(file, 0, 10)], share=False)
    first, second = made.append(new(1, 2, 3)), made.append(new(1, 2, 4))
    assert (first % 64, second - first) == (0, 64)
    assert made.append(new(1, 2, 3)) == first
    assert made.append(new()) == 0
    assert made.append(new(*[0] * 40, 7, *[0] * 40)) != made.append(new(*[0] * 40, 8, *[0] * 40))
    made.write(tmp_path / "out.bin")
    written = (tmp_path / "out.bin").read_bytes()
    assert (written[first : first + 3], written[second : second + 3]) == (b"\1\2\3", b"\1\2\4")


def test_a_shared_file_is_linked_and_appended_to(file, tmp_path):
    made = BinFile([FileRange(file, 5, 10)], share=True)
    offset = made.append(new(7, 8))
    made.reuse_appended()
    made.write(tmp_path / "out.bin")
    assert (tmp_path / "out.bin").samefile(file.path)
    assert (tmp_path / "out.bin").read_bytes()[:400_000] == CONTENT
    again = BinFile([FileRange(WeightFile.of(file.path), 5, 10)], share=True)
    again.append(new(7, 8))
    again.reuse_appended()
    assert again.appended == 0
    assert again.append(new(7, 8)) == offset


@pytest.mark.parametrize("count", [0, 2])
def test_only_one_file_can_be_shared(file, tmp_path, count):
    (tmp_path / "other.bin").write_bytes(b"other")
    used = [FileRange(file, 0, 1), FileRange(WeightFile.of(tmp_path / "other.bin"), 0, 1)][:count]
    with pytest.raises(UsageError, match="GP230"):
        BinFile(used, share=True)
    assert BinFile(used, share=False).copied is None


def test_a_whole_file_is_recognized_as_a_copy(file):
    made = BinFile([FileRange(file, 0, 400_000)], share=False)
    assert (made.copied, made.sources) == (file, (file,))
    made.append(new(1))
    assert made.copied is None
