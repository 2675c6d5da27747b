"""Leftovers of killed runs."""

import tempfile
from pathlib import Path

from graphpass.matrix.tidying import tidy
from graphpass.storage.locking import sole_worker
from graphpass.storage.scratch_folder import scratch_folder


def test_only_leftovers_of_dead_runs_are_removed(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    output, source = Path(cells[0].output), Path(cells[0].source)
    dead = [tmp_path / "tmp" / "graphpass-ci-dead", output / ".graphpass-1", source / ".graphpass_model-1"]
    for folder in dead:
        folder.mkdir(parents=True)
        (folder / "file").touch()
    dead.append(output.parent / ".a.graphpass-lock")
    dead[-1].touch()
    with sole_worker(Path(cells[1].output)), scratch_folder("graphpass-ci-") as alive:
        tidy(cells)
        assert not any(path.exists() for path in dead)
        assert alive.exists()
        assert (output.parent / ".b.graphpass-lock").exists()
