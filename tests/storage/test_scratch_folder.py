"""Temporary folders, which outlive neither their process nor the next one."""

import os

from graphpass.storage.scratch_folder import scratch_folder, sweep


def test_a_folder_goes_with_its_context(tmp_path):
    with scratch_folder("some-", tmp_path) as folder:
        (folder / "file").touch()
        sweep(tmp_path, "some-")
        assert [path.name for path in folder.iterdir()] == ["file"]
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_does_not_remove_it(tmp_path):
    with scratch_folder("some-", tmp_path) as folder:
        child = os.fork()
        if child == 0:
            raise_in_context(folder)
        os.waitpid(child, 0)
        assert folder.exists()


def raise_in_context(folder):
    """End a copy of the context, as a garbage collection does, and the process."""
    import gc

    for context in [one for one in gc.get_objects() if getattr(one, "__name__", "") == "scratch_folder"]:
        if hasattr(context, "close"):
            context.close()
    os._exit(0)


def test_those_of_dead_processes_are_swept_up(tmp_path):
    (tmp_path / "some-dead" / "inner").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    sweep(tmp_path, "some-")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
