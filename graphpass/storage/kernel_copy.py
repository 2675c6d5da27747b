"""Copy files by cloning blocks, past the file cache, or inside the kernel.

The caller waits until the disk has the copy, so it gains nothing from the cache, and making room there for gigabytes
takes longer than all else: on one machine 1.5 GB took 2.5 s past the cache, and from 4 to 23 s through it.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from pathlib import Path

from graphpass.progress import BYTES, advance, expect

#: The request to share all blocks of another file (linux/fs.h).
_FICLONE = 0x40049409

#: Bytes a call; signals are handled between two.
_CHUNK = 256 * 2**20

#: Smallest file that is copied past the cache, bytes of a block, and of a sector, at whose multiples blocks start.
_LARGE, _BLOCK, _SECTOR = 64 * 2**20, 16 * 2**20, 4096


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's content to a new file.

    Raises:
        OSError: The file system's error; `FileExistsError` if ``target`` is there.
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
    """Return whether copies of a file in a folder share its blocks."""
    probe = folder / "blocks"
    with source.open("rb") as reading, probe.open("xb") as writing:
        shared = _cloned(reading.fileno(), writing.fileno())
    probe.unlink()
    return shared


def reserve(target: int, size: int) -> None:
    """Reserve room: writing is five times faster on ext4, and a full disk shows.

    Raises:
        OSError: There is no room.
    """
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(target, 0, size)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:  # a file system that cannot
                raise


def flush(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to disk.

    Raises:
        OSError: The file system's error.
    """
    if path.is_dir() and sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_range(source: int, offset: int, length: int, target: int) -> None:
    """Copy bytes of one open file to the position of another.

    Args:
        source: File descriptor to read from; its position stays.
        offset: The first byte.
        length: Number of bytes.
        target: File descriptor to write to; its position moves on.

    Raises:
        OSError: The file system's error, or that the source ends too early.
    """
    end = offset + length
    by_kernel = hasattr(os, "copy_file_range")
    while offset < end:
        count = min(end - offset, _CHUNK)
        if by_kernel:
            try:
                done = os.copy_file_range(source, target, count, offset)
            except OSError:  # two file systems, or one that cannot; real failures show when writing
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
    except OSError:  # few file systems can: btrfs, xfs, some more; and not from one to another
        return False
    return True


def _copied_past_cache(source: int, size: int, target: Path) -> bool:
    if size < _LARGE or not hasattr(os, "O_DIRECT"):
        return False
    try:
        writing = os.open(target, os.O_WRONLY | os.O_DIRECT)
    except OSError:  # some file systems cannot: tmpfs
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
        return False  # its sectors are larger
    return True


def _cut(offset: int, end: int) -> OSError:
    return OSError(f"a file of weights ends at byte {offset}, and {end} bytes of it were there before")
