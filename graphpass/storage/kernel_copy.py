"""Copy files and ranges of files by the fastest means that the file system has."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from graphpass.progress import BYTES, advance, expect
from graphpass.storage.block_copy import LARGE, clone, copy_past_cache, reserve, truncated
from graphpass.storage.copying_ahead import take_copy

#: Bytes per system call; signals are handled between calls.
_CHUNK = 256 * 2**20


def copy_file(source: Path, target: Path) -> None:
    """Copy the content of a file to a new file.

    Args:
        source: The file to copy.
        target: The new file.

    Raises:
        OSError: The file system reports an error; `FileExistsError` if ``target`` exists.
    """
    if take_copy(source, target):
        return
    with source.open("rb") as reading, target.open("xb") as writing:
        if clone(reading.fileno(), writing.fileno()):
            return
        size = os.fstat(reading.fileno()).st_size
        expect(size, BYTES)
        reserve(writing.fileno(), size)
        if not _copied_past_cache(reading.fileno(), size, target):
            copy_range(reading.fileno(), 0, size, writing.fileno())


def shares_blocks(source: Path, folder: Path) -> bool:
    """Return whether the file system clones the blocks of a file copied into a folder.

    Args:
        source: A file to clone.
        folder: The folder, in which a temporary file ``blocks`` is created and removed.
    """
    probe = folder / "blocks"
    with source.open("rb") as reading, probe.open("xb") as writing:
        shared = clone(reading.fileno(), writing.fileno())
    probe.unlink()
    return shared


def flush(path: Path) -> None:
    """Flush the content of a file, or the entries of a folder, to disk.

    Raises:
        OSError: The file system reports an error.
    """
    if path.is_dir() and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_range(source: int, offset: int, length: int, target: int) -> None:
    """Copy a range of an open file to the current position of another.

    Args:
        source: File descriptor to read from; its position is unchanged.
        offset: Offset of the first byte.
        length: Number of bytes.
        target: File descriptor to write to; its position advances.

    Raises:
        OSError: The file system reports an error, or the source is too short.
    """  # noqa: DOC501 - it is an OSError
    end = offset + length
    by_kernel = hasattr(os, "copy_file_range")
    while offset < end:
        count = min(end - offset, _CHUNK)
        if by_kernel:
            try:
                done = os.copy_file_range(source, target, count, offset)
            except OSError:  # not supported between these files; other failures occur again when writing
                by_kernel = False
                continue
        else:
            done = os.write(target, os.pread(source, min(count, 2**20), offset))
        if not done:
            raise truncated(offset, end)
        offset += done
        advance(done, unit=BYTES)


def _copied_past_cache(source: int, size: int, target: Path) -> bool:
    if size < LARGE or not hasattr(os, "O_DIRECT"):
        return False
    try:
        writing = os.open(target, os.O_WRONLY | os.O_DIRECT)
    except OSError:  # not supported by some file systems, such as tmpfs
        return False
    try:
        return copy_past_cache(source, size, writing)
    finally:
        os.close(writing)
