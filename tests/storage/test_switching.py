"""Files of a folder are replaced at one instant, and a killed writer's work is completed or undone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphpass.storage import switching
from graphpass.storage.switching import settle, switch

NAMES = [Path("graph.xml"), Path("weights.bin"), Path("more") / "new.txt"]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Return the staged, the scratch and the destination folder."""
    destination = tmp_path / "out"
    scratch = destination / ".graphpass-1"
    staged = scratch / "staged"
    for name in NAMES:
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_text(f"new {name.name}")
    for name in NAMES[:2]:
        (destination / name).write_text(f"old {name.name}")
    (destination / "other").write_text("other")
    return staged, scratch, destination


def seen(destination: Path) -> list[str | None]:
    return [(destination / name).read_text() if (destination / name).exists() else None for name in NAMES]


OLD = ["old graph.xml", "old weights.bin", None]
NEW = ["new graph.xml", "new weights.bin", "new new.txt"]


def test_files_are_replaced_by_files(folders):
    staged, scratch, destination = folders
    assert switch(staged, scratch, destination, NAMES)
    assert seen(destination) == NEW
    assert not any((destination / name).is_symlink() for name in NAMES)
    assert (destination / "other").read_text() == "other"


def test_a_reader_sees_all_old_or_all_new_files(folders, monkeypatch):
    staged, scratch, destination = folders
    states: list[list[str | None]] = []
    replace = os.replace

    def observed(source, target):
        replace(source, target)
        states.append(seen(destination))

    monkeypatch.setattr(switching.os, "replace", observed)
    assert switch(staged, scratch, destination, NAMES)
    assert set(map(tuple, states)) == {tuple(OLD), tuple(NEW)}
    first = states.index(NEW)
    assert states[first:] == [NEW] * len(states[first:])


@pytest.mark.parametrize("failing", range(8))
def test_an_error_at_any_step_changes_nothing(folders, monkeypatch, failing):
    staged, scratch, destination = folders
    replace, calls = os.replace, []

    def fails(source, target):
        calls.append(target)
        if len(calls) == failing + 1:
            raise OSError(5, os.strerror(5))
        replace(source, target)

    monkeypatch.setattr(switching.os, "replace", fails)
    with pytest.raises(OSError, match=os.strerror(5)):
        switch(staged, scratch, destination, NAMES)
    monkeypatch.undo()
    assert seen(destination) == OLD
    assert not (destination / "more").exists()


def test_without_links_the_folder_is_unchanged(folders, monkeypatch):
    staged, scratch, destination = folders

    def refuse(*_, **__):
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(switching.os, "link", refuse)
    assert not switch(staged, scratch, destination, NAMES)
    assert seen(destination) == OLD


def test_other_errors_of_links_are_raised(folders, monkeypatch):
    staged, scratch, destination = folders

    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(switching.os, "link", full)
    with pytest.raises(OSError, match=os.strerror(28)):
        switch(staged, scratch, destination, NAMES)


class KilledError(BaseException):
    """Ends a writer without its clean-up."""


@pytest.mark.parametrize("killed", range(8))
def test_the_next_writer_settles_the_work_of_a_killed_one(folders, monkeypatch, killed):
    staged, scratch, destination = folders
    replace, calls = os.replace, []

    def kills(source, target):
        calls.append(target)
        if len(calls) == killed + 1:
            raise KilledError
        replace(source, target)

    # A killed process runs no clean-up.
    monkeypatch.setattr(switching.contextlib.ExitStack, "__exit__", lambda *_: False)
    monkeypatch.setattr(switching.os, "replace", kills)
    with pytest.raises(KilledError):
        switch(staged, scratch, destination, NAMES)
    monkeypatch.undo()
    settle(scratch, destination)
    assert seen(destination) in (OLD, NEW)
    assert not any((destination / name).is_symlink() for name in NAMES)
    assert not (scratch / "current").is_symlink()
    settle(scratch, destination)


def test_links_of_the_destination_become_files(folders, tmp_path):
    staged, scratch, destination = folders
    (tmp_path / "kept").write_text("kept")
    (destination / NAMES[0]).unlink()
    (destination / NAMES[0]).symlink_to(tmp_path / "kept")
    assert switch(staged, scratch, destination, NAMES)
    assert seen(destination) == NEW
    assert (tmp_path / "kept").read_text() == "kept"
