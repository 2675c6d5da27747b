"""Layout of the ``.bin`` file of an IR: existing weights, then new constants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from graphpass.errors import UsageError
from graphpass.progress import BYTES, expect
from graphpass.storage.block_copy import reserve
from graphpass.storage.kernel_copy import copy_file, copy_range
from graphpass.storage.locking import lock
from graphpass.storage.weight_file import FileRange, WeightFile, link_weights

#: Offsets of new constants are multiples of this, so they can be used in a memory map.
_ALIGNMENT = 64

#: Extents keep their offset within a page, which preserves alignment.
_PAGE = 4096

#: Unused gaps up to this size are copied: each gap costs more than copying its bytes.
_GAP = 64 * 1024

#: Limits of the search for equal bytes at the end of a shared file: candidate offsets, and those compared in full.
_LOOK_BACK, _COMPARED = 2**15, 8

_SAMPLE = 32


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of a weight file and its offset in the ``.bin`` file.

    Attributes:
        file: The weight file.
        start: Offset of the first byte.
        end: Offset after the last byte.
        target: Offset of the first byte in the ``.bin`` file.
    """

    file: WeightFile
    start: int
    end: int
    target: int


class BinFile:
    """Plans the offsets of a ``.bin`` file, then writes it."""

    def __init__(self, used: Iterable[FileRange], *, share: bool) -> None:
        """Plan the copied ranges.

        Args:
            used: Ranges of weight files that constants refer to.
            share: Whether the file is a hard link to the weight file.

        Raises:
            UsageError: GP230, ``share`` is set and the weights are not in exactly one file.
        """
        self._share = share
        self._extents = _whole_file(used) if share else _extents(used)
        self._size = self._start = max((_end(extent) for extent in self._extents), default=0)
        self._chunks: list[tuple[int, NDArray[numpy.uint8]]] = []
        self._known: dict[bytes, list[tuple[int, NDArray[numpy.uint8]]]] = {}

    @property
    def appended(self) -> int:
        """Return the number of bytes after the copied weights, padding included."""
        return self._size - self._start

    @property
    def sources(self) -> tuple[WeightFile, ...]:
        """Return the weight files that ranges are copied from."""
        return tuple(dict.fromkeys(extent.file for extent in self._extents))

    @property
    def copied(self) -> WeightFile | None:
        """Return the weight file that `write` copies whole and without additions, if any."""
        return self._extents[0].file if self._is_copy and not self._chunks and not self._share else None

    @property
    def _is_copy(self) -> bool:
        return len(self._extents) == 1 and self._extents[0].end == self._extents[0].file.size == self._start

    def offset_of(self, byte_range: FileRange) -> int:
        """Return the offset in bytes that a range of a weight file will have.

        Raises:
            AssertionError: The range was not planned.
        """
        for extent in self._extents:
            if extent.file == byte_range.file and extent.start <= byte_range.offset < max(extent.end, extent.start + 1):
                return extent.target + byte_range.offset - extent.start
        raise AssertionError(f"{byte_range} was not planned")

    def append(self, data: NDArray[numpy.uint8]) -> int:
        """Return the offset in bytes of new bytes; equal bytes are written once.

        Args:
            data: u8 ``[bytes]``, which must not change before `write`.
        """
        if not data.size:
            return 0
        key = data.size.to_bytes(8, "little") + data[:_SAMPLE].tobytes() + data[-_SAMPLE:].tobytes()
        alike = self._known.setdefault(key, [])
        for offset, known in alike:
            if known is data or numpy.array_equal(known, data):
                return offset
        offset = -(-self._size // _ALIGNMENT) * _ALIGNMENT
        alike.append((offset, data))
        self._chunks.append((offset, data))
        self._size = offset + data.size
        return offset

    def reuse_appended(self) -> None:
        """Use equal bytes that an earlier conversion appended to a shared file, if any.

        Raises:
            OSError: The file does not exist.
        """
        if not (self._share and self._chunks):
            return
        first = self._chunks[0][0]
        last = (self._start - (self._size - first)) // _ALIGNMENT * _ALIGNMENT
        if last < 0:
            return
        content = numpy.memmap(self._extents[0].file.path, numpy.uint8, "r", shape=(self._start,))
        shifts = numpy.arange(last, max(-1, last - _LOOK_BACK * _ALIGNMENT), -_ALIGNMENT) - first
        for offset, data in self._chunks:
            for index in (0, data.size - 1):
                shifts = shifts[content[shifts + offset + index] == data[index]]
        for moved in map(int, shifts[:_COMPARED]):
            if all(numpy.array_equal(content[offset + moved :][: data.size], data) for offset, data in self._chunks):
                self._known = {
                    key: [(offset + moved, data) for offset, data in alike] for key, alike in self._known.items()
                }
                self._chunks, self._size = [], self._start
                return

    def write(self, path: Path) -> None:
        """Write the file.

        Args:
            path: The path, which must not exist.

        Raises:
            OSError: The file system reports an error. A shared file then has its old length.
            ReadError: GP110, the shared file was replaced in the meantime.
        """
        if self._share:
            with contextlib.ExitStack() as stack:
                if self._chunks:  # concurrent writers to one file are serialized; the second detects the change
                    lock(self._extents[0].file.path, stack, wait=True)
                link_weights(self._extents[0].file, path)
                self._append_chunks(path)
            return
        if self._is_copy:
            copy_file(self._extents[0].file.path, path)
        else:
            with path.open("xb", buffering=0) as stream:
                reserve(stream.fileno(), self._size)
                expect(sum(extent.end - extent.start for extent in self._extents), BYTES)
                for extent in self._extents:
                    stream.seek(extent.target)
                    with extent.file.path.open("rb") as source:
                        copy_range(source.fileno(), extent.start, extent.end - extent.start, stream.fileno())
        self._append_chunks(path)

    def _append_chunks(self, path: Path) -> None:
        if not self._chunks:
            return
        with path.open("r+b", buffering=0) as stream:
            try:
                for offset, data in self._chunks:
                    stream.seek(offset)
                    _write_all(stream, data)
            except BaseException:
                stream.truncate(self._start)
                raise


def _write_all(stream: Any, data: NDArray[numpy.uint8]) -> None:
    view = data.data
    while view:
        view = view[stream.write(view) :]


def _end(extent: Extent) -> int:
    return extent.target + extent.end - extent.start


def _whole_file(used: Iterable[FileRange]) -> list[Extent]:
    files = list(dict.fromkeys(byte_range.file for byte_range in used))
    if len(files) != 1:
        where = f"in {len(files)} files: {', '.join(str(file.path) for file in files)}" if files else "in no file"
        reason = f"weights can be shared only if they are in one file; these are {where}"
        raise UsageError("GP230", reason, "write with --weights copy")
    return [Extent(files[0], 0, files[0].size, 0)]


def _extents(used: Iterable[FileRange]) -> list[Extent]:
    ranges: dict[WeightFile, list[tuple[int, int]]] = {}
    for byte_range in used:
        ranges.setdefault(byte_range.file, []).append((byte_range.offset, byte_range.offset + byte_range.length))
    extents: list[Extent] = []
    cursor = 0
    for file in sorted(ranges, key=lambda file: file.path):
        for start, end in _merged(ranges[file], file.size):
            target = cursor + (start - cursor) % _PAGE
            extents.append(Extent(file, start, end, target))
            cursor = target + end - start
    return extents


def _merged(ranges: list[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if not merged and start <= _GAP:
            start = 0
        if merged and start - merged[-1][1] <= _GAP:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    if merged and size - merged[-1][1] <= _GAP:
        merged[-1] = (merged[-1][0], size)
    return merged
