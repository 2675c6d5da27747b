"""Files to remove from a destination are recorded in the scratch folder."""

from pathlib import Path

from graphpass.storage.leaving import record_removals, recorded_removals, remove


def test_recorded_files_are_read_again(tmp_path):
    assert recorded_removals(tmp_path) == ()
    record_removals(tmp_path, [Path("a/b.bin"), Path("c")])
    assert recorded_removals(tmp_path) == (Path("a/b.bin"), Path("c"))


def test_files_that_are_gone_already_are_no_error(tmp_path):
    (tmp_path / "a").write_text("")
    (tmp_path / "kept").write_text("")
    remove([Path("a"), Path("b")], tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
