"""Give several files of a folder new content at one instant.

No call replaces two files at once, but one call can turn a link. So each file is first replaced by a link to the old
one, through one link that all have in common; that one is turned to the new files; and then each link gives way to the
file itself. At any time a reader finds all old files or all new ones::

    openvino_model.xml -> .graphpass-1/current/openvino_model.xml      .graphpass-1/current -> old, then -> complete
    openvino_model.bin -> .graphpass-1/current/openvino_model.bin

A new file hangs from a link that leads nowhere until then, so it is not there.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from graphpass.storage.kernel_copy import flush
from graphpass.storage.leaving import gone, remove

#: The link that all others lead through, and its targets: the folders of old and of new files.
_CURRENT, _OLD, _COMPLETE = "current", "old", "complete"

#: Copies of links among the old files; in ``old`` they are relative to the new place.
_LINKS = "links"

_MADE = "made"

_MOVING = "moving"


#: Errors of file systems without links, or on files that may not be linked.
_NO_LINKS = frozenset({errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def switch(staged: Path, scratch: Path, destination: Path, names: list[Path]) -> bool:
    """Put staged files into a folder at one instant, or leave it unchanged.

    Args:
        staged: The folder of the files, below ``scratch``.
        scratch: A folder in ``destination`` with a unique name.
        destination: The folder; it is locked.
        names: The files, relative to ``staged``.

    Returns:
        Whether the file system has the links; else the folder is as before.

    Raises:
        OSError: The file system's error.
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
    with contextlib.suppress(OSError):  # while the link is there, `settle` does the last steps again
        remove(gone(scratch), destination)
        current.unlink()
    return True


def settle(scratch: Path, destination: Path) -> None:
    """Finish or undo the unfinished work of another writer.

    Raises:
        OSError: The file system's error.
    """
    current, complete = scratch / _CURRENT, scratch / _COMPLETE
    if not current.is_symlink():
        return
    names = [file.relative_to(complete) for file in sorted(complete.rglob("*")) if file.is_file()]
    if os.readlink(current) == _COMPLETE:
        for name in names:
            _put(complete / name, destination / name, scratch)
        remove(gone(scratch), destination)
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
    """Give an old file a second name; make the folder of a new one."""
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
        with contextlib.suppress(OSError):  # not made yet, or gone with another file's; or in use by others
            (destination / folder).rmdir()
