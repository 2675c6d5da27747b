"""One process at a time works on a place."""

import threading
from pathlib import Path

import pytest

from graphpass.storage.locking import remove_lock, sole_worker


def test_other_processes_wait_and_the_lock_is_removed(tmp_path):
    place = tmp_path / "made" / "here" / "out"
    inside, most, done = [], [], []

    def work(number):
        with sole_worker(place):
            inside.append(number)
            most.append(len(inside))
            assert place.parent.is_dir()
            inside.remove(number)
            done.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(20))
    assert set(most) == {1}
    assert list(tmp_path.rglob("*.graphpass-lock")) == []


def test_unused_new_folders_are_removed(tmp_path):
    with pytest.raises(ZeroDivisionError), sole_worker(tmp_path / "a" / "b" / "out"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with sole_worker(tmp_path / "a" / "b" / "out"):
        (tmp_path / "a" / "b" / "out").mkdir()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["out"]


def test_a_lock_file_without_owner_is_acquired(tmp_path):
    (tmp_path / ".out.graphpass-lock").touch()
    with sole_worker(tmp_path / "out"):
        assert (tmp_path / ".out.graphpass-lock").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system where no folder can be made")
def test_an_uncreatable_folder():
    """It waited for ever."""
    with pytest.raises(FileNotFoundError), sole_worker(Path("/proc/no/folder/out")):
        pass


def test_a_file_in_the_place_of_a_folder(tmp_path):
    """`ci` ended with exit code 70."""
    (tmp_path / "file").touch()
    remove_lock(tmp_path / "file" / "out")
    with pytest.raises(FileExistsError), sole_worker(tmp_path / "file" / "out"):
        pass
