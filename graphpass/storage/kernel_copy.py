"""Copy files by cloning blocks, by direct I/O, or inside the kernel.

The caller waits until the data is on disk, so the page cache does not help, and freeing gigabytes of it is slow: on one
machine a copy of 1.5 GB took 2.5 s by direct I/O, and 4 to 23 s through the page cache.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from pathlib import Path

from graphpass.progress import BYTES, advance, expect

#: The ioctl that clones all blocks of another file (linux/fs.h).
_FICLONE = 0x40049409

#: Bytes per system call; signals are handled between calls.
_CHUNK = 256 * 2**20

#: Minimum size of a file that is copied by direct I/O, size of its blocks, and alignment of their offsets.
_LARGE, _BLOCK, _SECTOR = 64 * 2**20, 16 * 2**20, 4096


def copy_file(source: Path, target: Path) -> None:
    """Copy the content of a file to a new file.

    Args:
        source: The file to copy.
        target: The new file.

    Raises:
        OSError: The file system reports an error; `FileExistsError` if ``target`` exists.
    """
    with source.open("rb") as reading, target.open("xb") as writing:
        if _cloned(reading.fileno(), writing.fileno()):
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
        shared = _cloned(reading.fileno(), writing.fileno())
    probe.unlink()
    return shared


def reserve(target: int, size: int) -> None:
    """Allocate disk space: ext4 then writes five times faster; a full disk fails early.

    Args:
        target: Descriptor of a file that is open for writing.
        size: Bytes to allocate, from the start of the file.

    Raises:
        OSError: The disk is full.
    """
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(target, 0, size)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:  # not supported by this file system
                raise


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
    """  # noqa: DOC501 - _cut is an OSError
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
            raise _cut(offset, end)
        offset += done
        advance(done, unit=BYTES)


def _cloned(source: int, target: int) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # supported within one file system by btrfs, xfs and a few others
        return False
    return True


def _copied_past_cache(source: int, size: int, target: Path) -> bool:
    if size < _LARGE or not hasattr(os, "O_DIRECT"):
        return False
    try:
        writing = os.open(target, os.O_WRONLY | os.O_DIRECT)
    except OSError:  # not supported by some file systems, such as tmpfs
        return False
    try:
        with mmap.mmap(-1, _BLOCK) as block, memoryview(block) as view:
            offset = 0
            while offset < size:
                done = os.preadv(source, [view], offset)
                if offset + done < size:
                    done -= done % _SECTOR
                if not done:
                    raise _cut(offset, size)
                if not _written(writing, view[: -(-done // _SECTOR) * _SECTOR], offset):
                    return False
                offset += done
                advance(done, unit=BYTES)
        os.ftruncate(writing, size)  # the last sector was written as a whole
    finally:
        os.close(writing)
    return True


def _written(target: int, data: memoryview, offset: int) -> bool:
    written = 0
    try:
        while written < len(data):
            written += os.pwrite(target, data[written:], offset + written)
    except OSError as error:
        if error.errno != errno.EINVAL or offset + written:
            raise
        return False  # the device has larger sectors
    return True


def _cut(offset: int, end: int) -> OSError:
    return OSError(f"a file of weights was truncated: expected {end} bytes, got {offset}")
