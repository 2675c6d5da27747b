"""Files of weights that passes make."""

import gc

import pytest

from graphpass.errors import WriteError
from graphpass.storage import scratch_file
from graphpass.storage.scratch_file import ALIGNMENT, ScratchFile


def written(*weights: bytes) -> tuple[ScratchFile, list[int]]:
    file, starts = ScratchFile("made"), []
    for weight in weights:
        offset = file.begin()
        file.write(weight)
        starts.append(file.end(offset))
    file.finish()
    return file, starts


def test_equal_weights_are_stored_once_at_aligned_places():
    file, starts = written(b"one", b"other", b"one", b"third")
    assert starts == [0, ALIGNMENT, 0, 2 * ALIGNMENT]
    path = ScratchFile.find(file.name)
    assert path is not None
    content = path.read_bytes()
    assert (len(content), file.size) == (2 * ALIGNMENT + 5, 2 * ALIGNMENT + 5)
    assert [content[start:][:3] for start in starts] == [b"one", b"oth", b"one", b"thi"]


def test_names_follow_from_weights():
    names = [written(*weights)[0].name for weights in ((b"one",), (b"one", b"one"), (b"two",))]
    assert names[0] == names[1] != names[2]


def test_a_file_is_removed_with_its_last_user():
    file, _ = written(b"one")
    name, path = file.name, ScratchFile.find(file.name)
    assert path is not None
    assert path.exists()
    del file
    gc.collect()
    assert ScratchFile.find(name) is None
    assert not path.parent.exists()


def test_no_room_is_explained(monkeypatch):
    monkeypatch.setattr(scratch_file.tempfile, "mkdtemp", lambda **_: str(scratch_file.Path("/dev/null/none")))
    with pytest.raises(WriteError, match="GP501: cannot write weights to"):
        ScratchFile("made")
