"""Staging: files that are written into a folder atomically, all or none."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

from graphpass.errors import WriteError
from graphpass.storage.kernel_copy import flush
from graphpass.storage.leaving import record_removals, recorded_removals, remove
from graphpass.storage.locking import lock, remove_lock
from graphpass.storage.switching import settle, switch

_PREFIX = ".graphpass-"

_WRITING = "new"


@contextlib.contextmanager
def staging(destination: Path, replaced: Collection[str] = ()) -> Iterator[Path]:
    """Yield a new folder whose files are moved into the destination at the end.

    =====================================  ==========================================================
    destination                            replacement
    =====================================  ==========================================================
    missing                                appears at once, with all files
    existing                               all files change at once (`graphpass.storage.switching`)
    existing, file system without links    files change one at a time; the graph may be missing meanwhile
    =====================================  ==========================================================

    Thus a killed writer leaves either old or new files, and never a graph with weights of another result. If the
    ``with`` block or the replacement fails, the destination is unchanged, and temporary files are removed. After a
    crash the next writer cleans up. If several processes write the same files, one succeeds.

    Args:
        destination: The folder to write into; it is created with its parents if missing.
        replaced: Names of files to remove from the destination with the same change, unless they are written.

    Raises:
        WriteError: GP501, the file system reports an error, or the ``with`` block raises `OSError`; GP504, another
            process wrote the same files.
    """
    staged: Path | None = None
    try:
        with contextlib.ExitStack() as stack:
            base = next(folder for folder in (destination, *destination.absolute().parents) if folder.exists())
            for folder in (base, destination.absolute().parent):
                _clean_up(folder)
            inodes = _inodes(destination)
            scratch = _scratch_folder(base, stack)
            staged = scratch / _WRITING
            if inodes is None:
                missing = os.path.normpath(destination.absolute().relative_to(base))
                staged, destination = staged / missing, base / missing
            staged.mkdir(parents=True)
            yield staged
            for path in (*staged.rglob("*"), staged):
                flush(path)
            if inodes is None:
                _appear(staged, destination)
            else:
                lock(destination, stack, wait=True)
                _refuse_changes(staged, destination, inodes)
                names = [file.relative_to(staged) for file in sorted(staged.rglob("*")) if file.is_file()]
                removals = [name for name in map(Path, sorted(replaced)) if name not in names]
                record_removals(scratch, removals)
                if not switch(staged, scratch, destination, names):
                    _replace(staged, scratch, destination, names)
    except OSError as error:
        failed = str(error.filename or destination).replace(str(staged), str(destination))
        reason = f"cannot write to {destination}: {error.strerror or error} ({failed})"
        raise WriteError("GP501", reason, "nothing was changed; choose another folder, or free space") from error


def check_writable(file: Path) -> None:
    """Check that a file can be created or replaced.

    Raises:
        WriteError: GP501, the file cannot be written.
    """
    folder = next(parent for parent in file.absolute().parents if os.path.lexists(parent))
    if _is_stream(file) and os.access(file, os.W_OK):
        return
    if file.is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = f"{folder} is not a folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = f"permission denied in {folder}"
    else:
        return
    raise WriteError("GP501", f"cannot write {file}: {reason}", "nothing was changed; choose another folder")


def write_whole(file: Path, text: str) -> None:
    """Write a text file atomically.

    Args:
        file: The file. A device or pipe, as ``/dev/stdout``, is written to and not replaced.
        text: Its content; code points that UTF-8 cannot encode are escaped.

    Raises:
        WriteError: GP501, the file system reports an error; an existing file is unchanged.
    """
    # Names of nodes and files need not be text.
    content = text.encode("utf-8", errors="backslashreplace")
    if _is_stream(file):
        try:
            file.write_bytes(content)
        except OSError as error:
            raise WriteError("GP501", f"cannot write to {file}: {error.strerror}", "choose another file") from error
        return
    with staging(file.parent) as folder:
        (folder / file.name).write_bytes(content)


def _is_stream(file: Path) -> bool:
    """Return whether a file is a device, a pipe, or a process's open file."""
    if file.exists() and not (file.is_file() or file.is_dir()):
        return True
    at = file.parent / os.readlink(file) if file.is_symlink() else file
    return Path("/proc") in at.parent.resolve().parents


def remove_leftovers(destination: Path) -> None:
    """Complete or undo the work of killed writers in a folder; remove temporary files."""
    for folder in (destination, destination.absolute().parent):
        _clean_up(folder)
    remove_lock(destination)


def _scratch_folder(base: Path, stack: contextlib.ExitStack) -> Path:
    while True:
        scratch = base / f"{_PREFIX}{uuid.uuid4().hex}"
        stack.callback(_leave, scratch, base)  # before mkdir, so that an interrupt after it removes the folder
        scratch.mkdir()
        try:
            if lock(scratch, stack) and scratch.exists():
                return scratch
        except FileNotFoundError:  # another process removed the folder before it was locked
            continue


def _clean_up(base: Path) -> None:
    for scratch in sorted(base.glob(f"{_PREFIX}*")):
        with contextlib.ExitStack() as stack, contextlib.suppress(FileNotFoundError, PermissionError):
            if scratch.is_dir() and not scratch.is_symlink() and lock(scratch, stack):
                _leave(scratch, base)


def _leave(scratch: Path, base: Path) -> None:
    """Remove a scratch folder, unless files of ``base`` still depend on it."""
    try:
        settle(scratch, base)
        _finish(scratch, base)
    except OSError:  # the next writer retries
        return
    # Remove replaced files first: without the folder of new files they would be restored.
    for folder in (scratch / "replaced", scratch):
        shutil.rmtree(folder, ignore_errors=True)


def _inodes(folder: Path) -> dict[str, int] | None:
    if not folder.exists():
        return None
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _refuse_changes(staged: Path, destination: Path, inodes: dict[str, int]) -> None:
    now = _inodes(destination) or {}
    for name in sorted(path.name for path in staged.iterdir()):
        if now.get(name) != inodes.get(name):
            raise _overtaken(destination / name)
    for file in sorted(file for file in staged.rglob("*") if file.is_file()):
        target = destination / file.relative_to(staged)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        if target.exists() and not target.is_file():
            raise OSError(errno.EINVAL, "it is not a regular file", str(target))


def _appear(staged: Path, destination: Path) -> None:
    """Rename the staged folder, or its parent, to the destination, which does not exist.

    Raises:
        WriteError: GP504, another process created the destination.
        OSError: The file system reports an error.
    """  # noqa: DOC501 - _overtaken is a WriteError
    while True:
        depth = sum(1 for folder in destination.parents if not folder.exists())
        missing, new = (destination, *destination.parents)[depth], (staged, *staged.parents)[depth]
        try:
            new.rename(missing)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
            if destination.exists() or missing == destination:
                raise _overtaken(destination) from error
        else:
            break
    flush(missing.parent)


def _overtaken(path: Path) -> WriteError:
    reason = f"another process wrote {path} in the meantime"
    return WriteError("GP504", reason, "the other process's result is kept; run this again, or choose another folder")


_GRAPH_SUFFIXES = {".onnx", ".xml"}

#: Folders for new files before they are moved, and for the files that they replace.
_COMPLETE, _REPLACED = "arriving", "replaced"


def _replace(staged: Path, scratch: Path, destination: Path, names: list[Path]) -> None:
    """Move staged files into a folder one at a time; failures do not change it.

    Old graphs are moved away first, and new graphs are moved in last. So a graph is never beside weights of another
    result, but may be missing during the change.

    Args:
        staged: The folder of the files, below ``scratch``.
        scratch: A folder in ``destination`` with a unique name, which the caller removes.
        destination: The folder, which is locked.
        names: The files, relative to ``staged``.

    Raises:
        OSError: The file system reports an error.
    """
    names = sorted(names, key=lambda name: (_is_graph(name), name))
    complete, replaced = scratch / _COMPLETE, scratch / _REPLACED
    with contextlib.ExitStack() as undo:
        undo.callback(_rename_back, complete, staged)
        staged.rename(complete)
        flush(scratch)
        leaving = recorded_removals(scratch)
        for name in (*names, *leaving):
            if (_is_graph(name) or name in leaving) and os.path.lexists(destination / name):
                _put_away(destination / name, replaced / name, undo)
        for name in names:
            _move(complete / name, destination / name, replaced / name, undo)
        flush(destination)
        undo.pop_all()


def _finish(scratch: Path, destination: Path) -> None:
    """Complete or undo the work of a killed writer, if it had begun.

    Raises:
        OSError: The file system reports an error.
    """
    left = scratch / (_COMPLETE if (scratch / _COMPLETE).exists() else _REPLACED)
    files = (file for file in left.rglob("*") if file.is_file() or file.is_symlink())
    for file in sorted(files, key=lambda file: (_is_graph(file), file)):
        target = destination / file.relative_to(left)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, target)
    if left.name == _COMPLETE:
        remove(recorded_removals(scratch), destination)


def _is_graph(file: Path) -> bool:
    return file.suffix.lower() in _GRAPH_SUFFIXES


def _rename_back(complete: Path, staged: Path) -> None:
    if complete.exists():
        complete.rename(staged)


def _put_away(target: Path, old: Path, undo: contextlib.ExitStack) -> None:
    old.parent.mkdir(parents=True, exist_ok=True)
    undo.callback(_put_back, old, target)
    os.rename(target, old)


def _move(file: Path, target: Path, old: Path, undo: contextlib.ExitStack) -> None:
    for folder in reversed(target.parents):
        if not folder.exists():
            undo.callback(_remove_folder, folder)
            folder.mkdir()
    if os.path.lexists(target):
        _put_away(target, old, undo)
    elif not os.path.lexists(old):
        undo.callback(target.unlink, missing_ok=True)
    os.replace(file, target)


def _put_back(old: Path, target: Path) -> None:
    if os.path.lexists(old):
        os.replace(old, target)


def _remove_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not created yet, or in use by other processes
        folder.rmdir()
