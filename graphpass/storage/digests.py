"""SHA-256 digests of weights, computed by several threads and cached for each file.

The cache is in the user's cache folder, not beside the weights: comparing must not write to folders of models, which
may be read-only, under version control or uploaded, and extra files would be copied with a model.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from graphpass.errors import ReadError
from graphpass.machine import usable_cores
from graphpass.progress import BYTES, advance, expect
from graphpass.storage.documents import read_json, regular
from graphpass.storage.memory import is_settled, memory_of, remember
from graphpass.storage.weight_file import FileRange, WeightFile, check_unchanged

_CHUNK = 2**20

#: Minimum bytes that `computing_ahead` reads in a thread.
_LARGE = 64 * 2**20

_THREAD = "graphpass: digests"

#: Number of weight files with cached digests, the most recently used ones.
_REMEMBERED = 100


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        OSError: The file is not a regular file, or the file system reports an error.
    """
    hasher = hashlib.sha256()
    with regular(path).open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def digests_of(ranges: Iterable[FileRange]) -> dict[FileRange, str]:
    """Return the SHA-256 of ranges of weight files, cached for unchanged files.

    Raises:
        ReadError: GP110, a file changed since the model was read; GP111, a file cannot be read.
    """
    by_file: dict[WeightFile, list[FileRange]] = {}
    for byte_range in dict.fromkeys(ranges):
        by_file.setdefault(byte_range.file, []).append(byte_range)
    digests: dict[FileRange, str] = {}
    for file, inside in by_file.items():
        known = _remembered(file)
        digests |= {byte_range: known[_key(byte_range)] for byte_range in inside if _key(byte_range) in known}
        missing = [byte_range for byte_range in inside if byte_range not in digests]
        if not missing:
            continue
        computed = dict(zip(missing, _computed(file, missing), strict=True))
        check_unchanged([file])
        digests |= computed
        _remember(file, known | {_key(byte_range): digest for byte_range, digest in computed.items()})
    return digests


@contextlib.contextmanager
def computing_ahead(ranges: Iterable[FileRange]) -> Iterator[None]:
    """Compute digests in a thread while the context runs.

    `digests_of` then finds them cached. The thread ends with the context, and reports no errors: `digests_of` computes
    digests that are not cached, and reports these errors.

    Args:
        ranges: Ranges of files, such as each weight and the whole file. Fewer than 64 MB are left to `digests_of`.
    """
    ranges, stopped = tuple(ranges), threading.Event()
    if sum(byte_range.length for byte_range in ranges) >= _LARGE:
        threading.Thread(target=_compute_ahead, args=(ranges, stopped), name=_THREAD, daemon=True).start()
    try:
        yield
    finally:
        stopped.set()


def _compute_ahead(ranges: Sequence[FileRange], stopped: threading.Event) -> None:
    with contextlib.suppress(OSError, ReadError):
        for file in dict.fromkeys(byte_range.file for byte_range in ranges):
            known = _remembered(file)
            inside = [each for each in ranges if each.file == file and _key(each) not in known]
            with file.path.open("rb", buffering=0) as stream:
                computed = {_key(each): _digest(stream.fileno(), each, stopped) for each in inside}
            check_unchanged([file])
            if inside and not stopped.is_set():
                _remember(file, _remembered(file) | computed)


def digests_of_files(folder: Path, sizes: Mapping[str, int]) -> dict[str, str]:
    """Return the SHA-256 of the first bytes of files, which may have grown since.

    Args:
        folder: The folder of the files.
        sizes: Number of bytes by file name.

    Raises:
        OSError: The file system reports an error.
        ReadError: GP110 and GP111, as `digests_of`.
    """
    ranges = {name: FileRange(WeightFile.of(folder / name), 0, size) for name, size in sizes.items()}
    digests = digests_of(ranges.values())
    return {name: digests[byte_range] for name, byte_range in ranges.items()}


def _computed(file: WeightFile, ranges: list[FileRange]) -> list[str]:
    try:
        with file.path.open("rb", buffering=0) as stream, ThreadPoolExecutor(min(8, usable_cores())) as threads:
            expect(sum(byte_range.length for byte_range in ranges), BYTES)
            digests: list[str] = []
            for digest in threads.map(lambda byte_range: _digest(stream.fileno(), byte_range), ranges):
                advance(ranges[len(digests)].length, unit=BYTES)
                digests.append(digest)
            return digests
    except OSError as error:
        check_unchanged([file])
        raise ReadError("GP111", f"{file.path} cannot be read: {error.strerror}") from error


def _digest(descriptor: int, byte_range: FileRange, stopped: threading.Event | None = None) -> str:
    """Return the SHA-256 of a range, or of a part of it after ``stopped``."""
    hasher = hashlib.sha256()
    offset, end = byte_range.offset, byte_range.offset + byte_range.length
    while offset < end and not (stopped is not None and stopped.is_set()):
        chunk = os.pread(descriptor, min(_CHUNK, end - offset), offset)
        if not chunk:  # the file was truncated; `check_unchanged` reports it
            break
        hasher.update(chunk)
        offset += len(chunk)
    return hasher.hexdigest()


def _key(byte_range: FileRange) -> str:
    return f"{byte_range.offset}+{byte_range.length}"


def identity_of(file: WeightFile) -> list[Any]:
    """Return path, file ids, size and time of a file, which change with its content."""
    return [str(file.path), file.device, file.inode, file.size, file.modified]


def _remembered(file: WeightFile) -> dict[str, str]:
    try:
        known = read_json(memory_of("digests", file.path).read_bytes())
        return dict(known["digests"]) if known["file"] == identity_of(file) else {}
    except (OSError, ValueError, KeyError, TypeError):  # no valid cache entry
        return {}


def _remember(file: WeightFile, digests: dict[str, str]) -> None:
    if not is_settled(file.modified):
        return
    memory = memory_of("digests", file.path)
    remember(memory, {"file": identity_of(file), "digests": digests})
    with contextlib.suppress(OSError):  # other processes remove entries, too
        files = sorted(memory.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for old in files[_REMEMBERED:]:
            old.unlink()
