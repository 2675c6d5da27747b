"""Weight files: detection of changes, hard links, and constants in memory maps."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from graphpass.errors import ReadError, UsageError

#: Hint for a file without read permission.
GRANT_READ = "grant this user read access"

_MAPS = Path("/proc/self/maps")

#: The kernel's ``MADV_DONTNEED``.
_DONT_NEED = 4

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A weight file, with its identity when the model was read.

    Attributes:
        path: The file, with links resolved.
        device: Number of its file system.
        inode: Its inode number, which changes if the file is replaced.
        size: Size in bytes.
        modified: Time of the last write, in ns.
    """

    path: Path
    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, path: Path) -> WeightFile:
        """Return the file with its current identity.

        Raises:
            OSError: The file does not exist.
        """
        status = path.stat()
        return cls(path.resolve(), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def is_same(self, path: Path) -> bool:
        """Return whether ``path`` refers to this file, and the file is unchanged."""
        return replace(WeightFile.of(path), path=self.path) == self

    @property
    def unchanged(self) -> bool:
        """Return whether the file still exists and is unchanged."""
        try:
            return WeightFile.of(self.path) == self
        except OSError:
            return False


def lies_with(file: Path, model_file: Path) -> bool:
    """Return whether a weight file is below the folder of its model, with links resolved.

    Args:
        file: The weight file.
        model_file: The model file. If it is a link, the folder of its target counts, too: in a download cache both
            files are links into a folder of blobs.
    """
    folders = (model_file.parent.resolve(), model_file.resolve().parent)
    return any(file.resolve().is_relative_to(folder) for folder in folders)


def check_unchanged(files: Iterable[WeightFile]) -> None:
    """Check that the files are unchanged since the model was read.

    Raises:
        ReadError: GP110, a file was replaced, edited or removed.
    """
    for file in files:
        if not file.unchanged:
            reason = f"{file.path} was replaced, edited or removed after the model was read from it"
            raise ReadError("GP110", reason, "run it again when nothing else writes to the model")


def link_weights(file: WeightFile, path: Path) -> None:
    """Create a hard link to a weight file.

    Args:
        file: The weight file.
        path: The link, which must not exist.

    Raises:
        OSError: The disk is full or read-only.
        ReadError: GP110, the file was replaced.
        UsageError: GP230, the file system does not support this link.
    """
    try:
        os.link(file.path, path)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
            raise
        reason = f"{file.path} cannot be shared: {error.strerror}"
        raise UsageError("GP230", reason, "write on the same file system, or with --weights copy") from error
    if not file.is_same(path):  # the source was replaced before the link was created
        check_unchanged([file])


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of bytes in a weight file.

    Attributes:
        file: The file.
        offset: Offset of the first byte.
        length: Number of bytes.
    """

    file: WeightFile
    offset: int
    length: int

    def ends(self, count: int) -> bytes:
        """Read the first and last ``count`` bytes by file; the map loads a megabyte.

        Returns:
            ``2 * count`` bytes: the first ones, then the last ones.

        Raises:
            OSError: The file does not exist.
        """
        descriptor = os.open(self.file.path, os.O_RDONLY)
        try:
            return os.pread(descriptor, count, self.offset) + os.pread(
                descriptor, count, self.offset + self.length - count
            )
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Window:
    start: int
    end: int
    offset: int
    file: WeightFile
    read_only: bool


def release(files: Iterable[WeightFile]) -> None:
    """Release the memory of read-only maps of ``files``, on Linux only.

    The kernel reads pages again when they are accessed. This helps after a runtime has packed the weights, which reads
    each map once.
    """
    files = tuple(files)
    if not (files and _MAPS.exists()):
        return
    advise = ctypes.CDLL(None).madvise
    for window in _windows(files):
        if window.read_only:
            advise(ctypes.c_void_p(window.start), ctypes.c_size_t(window.end - window.start), _DONT_NEED)


class MappedWeights:
    """Finds the file ranges of constants in a model's weight files.

    OpenVINO maps an IR's ``.bin`` file and ONNX external data into memory, and constants point into these maps. Linux
    lists the maps in ``/proc``. On other systems no constant is found, so all constants are appended.
    """

    def __init__(self, files: Iterable[WeightFile]) -> None:
        """Read the memory maps of ``files``."""
        files = tuple(files)
        self._windows = _windows(files) if files and _MAPS.exists() else []

    def find(self, address: int, length: int) -> FileRange | None:
        """Return the file range of a constant in memory; ``None`` if it is not mapped.

        Args:
            address: Address of its first byte in this process.
            length: Number of bytes.
        """
        for window in self._windows:
            if window.start <= address and address + length <= window.end:
                offset = window.offset + address - window.start
                # The last page of a map extends beyond the end of the file.
                if offset + length <= window.file.size:
                    return FileRange(window.file, offset, length)
        return None


def _windows(files: tuple[WeightFile, ...]) -> list[_Window]:
    # Match by path and by inode: overlay file systems report other inodes here, and temporary links may be removed.
    paths = {str(file.path): file for file in files}
    numbers = {(os.major(file.device), os.minor(file.device), file.inode): file for file in files}
    windows = []
    for line in _MAPS.read_text(errors="surrogateescape").splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6:
            continue
        addresses, rights, offset, device, inode, shown = fields
        name = _OCTAL.sub(lambda match: chr(int(match[1], 8)), shown) if "\\" in shown else shown
        major, _, minor = device.partition(":")
        file = paths.get(name) or numbers.get((int(major, 16), int(minor, 16), int(inode)))
        if file is not None:
            start, end = (int(part, 16) for part in addresses.split("-"))
            windows.append(_Window(start, end, int(offset, 16), file, "w" not in rights))
    return windows
