"""Temporary folders, which outlive neither their process nor the next one."""

import os
import subprocess
import sys

import pytest

from graphpass.storage.scratch_folder import scratch_folder, sweep_scratch


def test_a_folder_is_removed_at_the_end_of_its_context(tmp_path):
    with scratch_folder("some-", tmp_path) as folder:
        (folder / "file").touch()
        sweep_scratch(tmp_path, "some-")
        assert [path.name for path in folder.iterdir()] == ["file"]
    assert list(tmp_path.iterdir()) == []


_FORKS = """
import os, sys
from pathlib import Path
from graphpass.storage.scratch_folder import scratch_folder
context = scratch_folder("some-", Path(sys.argv[1]))
folder = context.__enter__()
child = os.fork()
if child == 0:
    context.__exit__(None, None, None)
    os._exit(0)
os.waitpid(child, 0)
print(folder.exists())
context.__exit__(None, None, None)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_does_not_remove_the_folder(tmp_path):
    # A process of its own: a child of the test's would go on with the tests if it failed.
    done = subprocess.run([sys.executable, "-c", _FORKS, tmp_path], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"
    assert list(tmp_path.iterdir()) == []


def test_folders_of_dead_processes_are_removed(tmp_path):
    (tmp_path / "some-dead" / "inner").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    sweep_scratch(tmp_path, "some-")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
