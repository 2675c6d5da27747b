"""Find constants in the files that a model's weights lie in, while those are unchanged."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from graphpass.errors import ReadError, UsageError

#: Cure for a file that may not be read.
LET_READ = "let this user read it"

_MAPS = Path("/proc/self/maps")

#: The kernel's ``MADV_DONTNEED``.
_DONT_NEED = 4

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class WeightFile:
    """Identifies a file of weights as it was when the model was read.

    Attributes:
        path: The file, links resolved.
        device: Its file system.
        inode: Its number there; a file put in its place has another.
        size: Bytes.
        modified: Time of the last write, in ns.
    """

    path: Path
    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, path: Path) -> WeightFile:
        """Return the file as it is now.

        Raises:
            OSError: There is none.
        """
        status = path.stat()
        return cls(path.resolve(), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def is_same(self, path: Path) -> bool:
        """Return whether ``path`` is another name of this file, unchanged."""
        return replace(WeightFile.of(path), path=self.path) == self

    @property
    def unchanged(self) -> bool:
        """Return whether the file is still there, unchanged."""
        try:
            return WeightFile.of(self.path) == self
        except OSError:
            return False


def lies_with(file: Path, model_file: Path) -> bool:
    """Return whether a file of weights lies below the folder of its model, links resolved.

    The folder of the file that the model is a link to serves, too: in a download cache both are links into one of
    blobs.
    """
    folders = (model_file.parent.resolve(), model_file.resolve().parent)
    return any(file.resolve().is_relative_to(folder) for folder in folders)


def check_unchanged(files: Iterable[WeightFile]) -> None:
    """Check that the files are still those that the model was read from.

    Raises:
        ReadError: GP110, one was replaced, edited or removed.
    """
    for file in files:
        if not file.unchanged:
            reason = f"{file.path} was replaced, edited or removed after the model was read from it"
            raise ReadError("GP110", reason, "run it again when nothing else writes to the model")


def link_weights(file: WeightFile, path: Path) -> None:
    """Make ``path`` a second name of a weight file.

    Raises:
        OSError: The file system's error, if it lacks room.
        ReadError: GP110, the file was replaced.
        UsageError: GP230, the file system makes no such link.
    """
    try:
        os.link(file.path, path)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
            raise
        reason = f"{file.path} cannot be shared: {error.strerror}"
        raise UsageError("GP230", reason, "write on the same file system, or with --weights copy") from error
    if not file.is_same(path):  # replaced just before; nothing may be appended to that one
        check_unchanged([file])


@dataclass(frozen=True, slots=True)
class FileRange:
    """Places bytes in a weight file.

    Attributes:
        file: The file.
        offset: The first byte.
        length: Number of bytes.
    """

    file: WeightFile
    offset: int
    length: int

    def ends(self, count: int) -> bytes:
        """Read both ends of the bytes from the file: touching a map maps a megabyte.

        Raises:
            OSError: The file is gone.
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
    """Give back the memory of read-only maps of ``files``.

    The kernel reads again as much as is touched later. Runtimes that pack weights read a whole map once. Elsewhere
    than on Linux nothing is given back.
    """
    files = tuple(files)
    if not (files and _MAPS.exists()):
        return
    advise = ctypes.CDLL(None).madvise
    for window in _windows(files):
        if window.read_only:
            advise(ctypes.c_void_p(window.start), ctypes.c_size_t(window.end - window.start), _DONT_NEED)


class MappedWeights:
    """Finds the memory of constants in a model's weight files.

    OpenVINO maps an IR's ``.bin`` and ONNX external data into memory, and its constants point there. The kernel lists
    the maps (``/proc``, so on Linux; elsewhere no constant is found, and all are appended).
    """

    def __init__(self, files: Iterable[WeightFile]) -> None:
        """Look up the maps of ``files``."""
        files = tuple(files)
        self._windows = _windows(files) if files and _MAPS.exists() else []

    def find(self, address: int, length: int) -> FileRange | None:
        """Return the place of ``length`` bytes of memory; ``None`` if not from a file."""
        for window in self._windows:
            if window.start <= address and address + length <= window.end:
                offset = window.offset + address - window.start
                # The last page of a map reaches beyond the end of the file.
                if offset + length <= window.file.size:
                    return FileRange(window.file, offset, length)
        return None


def _windows(files: tuple[WeightFile, ...]) -> list[_Window]:
    # By path, and by number: overlay file systems show other numbers here, temporary links are gone by now.
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
