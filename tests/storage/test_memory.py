"""The cache of results that were computed from files."""

import json
import time

import pytest

from graphpass.storage.memory import is_settled, memory_folder, memory_of, remember, sweep_memory


@pytest.fixture(autouse=True)
def _home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    assert memory_folder("runs") == tmp_path / "xdg/graphpass/runs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert memory_folder("runs") == tmp_path / "local/graphpass/runs"
    monkeypatch.delenv("LOCALAPPDATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert memory_folder("runs") == tmp_path / ".cache/graphpass/runs"


def test_a_path_has_one_file_however_it_is_written(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert memory_of("runs", "a/../b") == memory_of("runs", tmp_path / "b")
    assert memory_of("runs", "a") != memory_of("runs", "b")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert memory_of("runs", "link") != memory_of("runs", "b")


def test_content_is_written_whole_and_replaced():
    file = memory_of("runs", "a")
    remember(file, {"n": 1})
    remember(file, [2])
    assert json.loads(file.read_text()) == [2]
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_errors_of_the_file_system_are_ignored(tmp_path):
    (tmp_path / "file").write_text("")
    remember(tmp_path / "file" / "below.json", 1)


@pytest.mark.parametrize(("age", "settled"), [(0, False), (1.5, False), (2.5, True)])
def test_recent_writes_are_not_settled(age, settled):
    now = time.time_ns()
    assert is_settled(now - 10**12, now - int(age * 10**9)) == settled


def test_incomplete_files_of_killed_processes_are_removed(monkeypatch):
    folder = memory_folder("digests")
    folder.mkdir(parents=True)
    for name in ("old.new", "whole.json"):
        (folder / name).write_text("")
    sweep_memory()
    assert (folder / "old.new").exists()
    later = time.time_ns() + 3 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    sweep_memory()
    assert [file.name for file in folder.iterdir()] == ["whole.json"]
