"""Replace several files of a folder at one instant.

No system call replaces two files, but replacing one symbolic link can redirect many paths:

1. Each file is replaced by a link to the old file, through a common link ``current``.
2. ``current`` is redirected from the old files to the new ones.
3. Each link is replaced by the new file.

A reader sees either all old files or all new ones::

    openvino_model.xml -> .graphpass-1/current/openvino_model.xml      .graphpass-1/current -> old, then -> complete
    openvino_model.bin -> .graphpass-1/current/openvino_model.bin

The link of a file that did not exist before is dangling until step 2, so the file does not exist for readers.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from graphpass.storage.kernel_copy import flush
from graphpass.storage.leaving import recorded_removals, remove

#: The common link, and its targets: the folders of old and of new files.
_CURRENT, _OLD, _COMPLETE = "current", "old", "complete"

#: Copies of old files that are symbolic links; in ``old`` they are resolved.
_LINKS = "links"

_MADE = "made"

_MOVING = "moving"


#: Errors of file systems without links, and for files that may not be linked.
_NO_LINKS = frozenset({errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def switch(staged: Path, scratch: Path, destination: Path, names: list[Path]) -> bool:
    """Replace files of a folder by staged ones at one instant, or change nothing.

    Args:
        staged: The folder of the files, below ``scratch``.
        scratch: A folder in ``destination`` with a unique name.
        destination: The folder, which is locked.
        names: The files, relative to ``staged``.

    Returns:
        Whether the file system supports links; otherwise the folder is unchanged.

    Raises:
        OSError: The file system reports an error.
    """
    current = scratch / _CURRENT
    with contextlib.ExitStack() as undo:
        try:
            _try_links(scratch)
            undo.callback(current.unlink, missing_ok=True)
            _turn(scratch, _OLD)
            for name in names:
                undo.callback(_restore, scratch, destination, name)
                _keep(scratch, destination, name)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        staged.rename(scratch / _COMPLETE)
        for name in names:
            _hang(scratch, destination, name)
        undo.callback(_turn, scratch, _OLD)
        _turn(scratch, _COMPLETE)
        flush(scratch)
        for name in names:
            undo.callback(_hang, scratch, destination, name)
            _put(scratch / _COMPLETE / name, destination / name, scratch)
        flush(destination)
        undo.pop_all()
    with contextlib.suppress(OSError):  # on failure the link remains, and `settle` repeats these steps
        remove(recorded_removals(scratch), destination)
        current.unlink()
    return True


def settle(scratch: Path, destination: Path) -> None:
    """Complete or undo the work of a killed writer.

    Args:
        scratch: The scratch folder of the writer, as in `switch`.
        destination: The folder whose files it was replacing.

    Raises:
        OSError: The file system reports an error.
    """
    current, complete = scratch / _CURRENT, scratch / _COMPLETE
    if not current.is_symlink():
        return
    names = [file.relative_to(complete) for file in sorted(complete.rglob("*")) if file.is_file()]
    if os.readlink(current) == _COMPLETE:
        for name in names:
            _put(complete / name, destination / name, scratch)
        remove(recorded_removals(scratch), destination)
    else:
        for name in names:
            _restore(scratch, destination, name)
        for folder in sorted((scratch / _MADE).rglob("*"), reverse=True):
            _remove_made(scratch, destination, folder.relative_to(scratch / _MADE))
    current.unlink()


def _try_links(scratch: Path) -> None:
    file, hard, soft = (scratch / f"{_MOVING}-{kind}" for kind in ("file", "hard", "soft"))
    file.touch()
    os.link(file, hard)
    soft.symlink_to(file.name)


def _keep(scratch: Path, destination: Path, name: Path) -> None:
    """Link an old file into ``old``, or create the folder of a new file."""
    target, old = destination / name, scratch / _OLD / name
    if not os.path.lexists(target):
        for folder in reversed(name.parents):
            if not (destination / folder).exists():
                (scratch / _MADE / folder).mkdir(parents=True, exist_ok=True)
                (destination / folder).mkdir()
        return
    old.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_symlink():
        os.link(target, old)
        return
    link = scratch / _LINKS / name
    link.parent.mkdir(parents=True, exist_ok=True)
    os.link(target, link, follow_symlinks=False)
    old.symlink_to(os.path.realpath(target))


def _turn(scratch: Path, to: str) -> None:
    moving = scratch / _MOVING
    moving.unlink(missing_ok=True)
    moving.symlink_to(to)
    os.replace(moving, scratch / _CURRENT)


def _hang(scratch: Path, destination: Path, name: Path) -> None:
    """Replace a file by a link through ``current``."""
    target, moving = destination / name, scratch / _MOVING
    through = scratch.resolve() / _CURRENT / name
    moving.unlink(missing_ok=True)
    moving.symlink_to(os.path.relpath(through, target.parent.resolve()))
    os.replace(moving, target)


def _put(file: Path, target: Path, scratch: Path) -> None:
    moving = scratch / _MOVING
    moving.unlink(missing_ok=True)
    os.link(file, moving, follow_symlinks=False)
    os.replace(moving, target)


def _restore(scratch: Path, destination: Path, name: Path) -> None:
    target = destination / name
    for kept in (scratch / _LINKS / name, scratch / _OLD / name):
        if os.path.lexists(kept):
            _put(kept, target, scratch)
            return
    if target.is_symlink() and scratch.name in Path(os.readlink(target)).parts:
        target.unlink()
    for folder in name.parents:
        _remove_made(scratch, destination, folder)


def _remove_made(scratch: Path, destination: Path, folder: Path) -> None:
    if folder.name and (scratch / _MADE / folder).is_dir():
        with contextlib.suppress(OSError):  # not created yet, removed already, or in use by other processes
            (destination / folder).rmdir()
