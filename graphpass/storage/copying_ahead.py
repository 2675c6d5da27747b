"""Copies of large files, made by a thread while models are compared.

A copy has no name before `take_copy`, so an interrupted command leaves no file.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from pathlib import Path

from graphpass.storage.block_copy import LARGE, clone, copy_past_cache, reserve
from graphpass.storage.weight_file import WeightFile

_THREAD = "graphpass: copies"

#: Links to the open files of a process, by descriptor.
_OPEN_FILES = Path("/proc/self/fd")


class _Copy:
    """A file without a name; ``done`` states whether the thread copied the content."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.done: Future[bool] = Future()


_COPIES: ContextVar[dict[WeightFile, _Copy] | None] = ContextVar("copies", default=None)


@contextlib.contextmanager
def copying_ahead(files: Iterable[WeightFile], folder: Path) -> Iterator[None]:
    """Copy files in a thread while the context runs, for `take_copy`.

    Files of less than 64 MB are left to `graphpass.storage.kernel_copy.copy_file`, as are all files where the file
    system has no files without a name.

    Args:
        files: The files to copy.
        folder: A folder of the file system to copy to.
    """
    stopped = threading.Event()
    with contextlib.ExitStack() as stack:
        copies: dict[WeightFile, _Copy] = {}
        for file in dict.fromkeys(files):
            if file.size >= LARGE and (descriptor := _nameless(folder)) is not None:
                stack.callback(os.close, descriptor)
                copies[file] = _Copy(descriptor)
        thread = threading.Thread(target=_fill, args=({**copies}, stopped), name=_THREAD, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stopped.set)
        stack.callback(_COPIES.reset, _COPIES.set(copies))
        yield


def take_copy(source: Path, target: Path) -> bool:
    """Give the copy that `copying_ahead` made of a file its name, once.

    Args:
        source: The file.
        target: The new file.

    Returns:
        Whether there is a copy; if not, ``target`` is not created.

    Raises:
        OSError: The file system reports an error; `FileExistsError` if ``target`` exists.
    """
    copies = _COPIES.get()
    # A second name would be a hard link, and not another copy.
    if not copies or (copy := copies.pop(WeightFile.of(source), None)) is None or not copy.done.result():
        return False
    # A folder's descriptor selects linkat, which follows the symbolic link; link does not. The path is absolute.
    os.link(_OPEN_FILES / str(copy.descriptor), target, src_dir_fd=copy.descriptor, follow_symlinks=True)
    return True


def _nameless(folder: Path) -> int | None:
    if not (hasattr(os, "O_TMPFILE") and hasattr(os, "O_DIRECT") and _OPEN_FILES.exists()):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_DIRECT, 0o666)
    except OSError:  # not supported by this file system
        return None


def _fill(copies: Mapping[WeightFile, _Copy], stopped: threading.Event) -> None:
    for file, copy in copies.items():
        _fill_one(file, copy, stopped)


def _fill_one(file: WeightFile, copy: _Copy, stopped: threading.Event) -> None:
    try:
        with file.path.open("rb") as stream:
            done = clone(stream.fileno(), copy.descriptor)
            if not done:
                reserve(copy.descriptor, file.size)
                done = copy_past_cache(stream.fileno(), file.size, copy.descriptor, stopped)
        copy.done.set_result(done and file.unchanged)
    except Exception as error:  # noqa: BLE001 - raised again where the copy is taken
        copy.done.set_exception(error)
