"""Replace files of a folder one by one, on file systems without links."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from graphpass.storage.kernel_copy import flush
from graphpass.storage.leaving import gone, remove

_GRAPH_SUFFIXES = {".onnx", ".xml"}

#: Folders for new files before they take their place, and for the files that they replace.
_COMPLETE, _REPLACED = "arriving", "replaced"


def replace(staged: Path, scratch: Path, destination: Path, names: list[Path]) -> None:
    """Put staged files into a folder; on failure the folder is as before.

    Old graphs leave first and new ones come last, so that no graph ever stands beside weights of another; for an
    instant there is none.

    Args:
        staged: The folder of the files, below ``scratch``.
        scratch: A folder in ``destination`` with a unique name, to be removed with its contents.
        destination: The folder; it is locked.
        names: The files, relative to ``staged``.

    Raises:
        OSError: The file system's words.
    """
    names = sorted(names, key=lambda name: (_is_graph(name), name))
    complete, replaced = scratch / _COMPLETE, scratch / _REPLACED
    with contextlib.ExitStack() as undo:
        undo.callback(_rename_back, complete, staged)
        staged.rename(complete)
        flush(scratch)
        leaving = gone(scratch)
        for name in (*names, *leaving):
            if (_is_graph(name) or name in leaving) and os.path.lexists(destination / name):
                _put_away(destination / name, replaced / name, undo)
        for name in names:
            _move(complete / name, destination / name, replaced / name, undo)
        flush(destination)
        undo.pop_all()


def finish(scratch: Path, destination: Path) -> None:
    """Finish or undo the work of a writer that was killed, if it had begun.

    Raises:
        OSError: The file system's words.
    """
    left = scratch / (_COMPLETE if (scratch / _COMPLETE).exists() else _REPLACED)
    files = (file for file in left.rglob("*") if file.is_file() or file.is_symlink())
    for file in sorted(files, key=lambda file: (_is_graph(file), file)):
        target = destination / file.relative_to(left)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, target)
    if left.name == _COMPLETE:
        remove(gone(scratch), destination)


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
    with contextlib.suppress(OSError):  # not made yet, or others use it by now
        folder.rmdir()
