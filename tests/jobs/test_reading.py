"""The input of a job: a file, a folder with one model, or one of several that somebody selects."""

import pytest

import graphpass
from graphpass.errors import UsageError
from graphpass.jobs.reading import read_model
from graphpass.testing import parse_model

MODEL = parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}")


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b"):
        graphpass.save(MODEL, tmp_path / f"{name}.onnx")
    return tmp_path


def test_a_file_or_the_only_model_of_a_folder(folder):
    assert read_model(folder / "a.onnx").path == folder / "a.onnx"
    (folder / "b.onnx").unlink()
    assert read_model(folder).path == folder / "a.onnx"


def test_one_of_several_is_selected_or_the_folder_is_refused(folder):
    asked = []

    def choose(place):
        asked.append(place)
        return place / "b.onnx"

    assert read_model(folder, choose=choose).path == folder / "b.onnx"
    assert asked == [folder]
    with pytest.raises(UsageError, match="GP201"):
        read_model(folder)


def test_declarations_of_the_job_come_before_those_of_the_file(folder):
    declared = read_model(folder / "a.onnx", ["x=kv,sequence=0"])
    graphpass.save(declared, folder / "c.onnx")
    (again,) = read_model(folder / "c.onnx").declarations
    assert (again.name, again.kind) == ("x", "kv")
    (changed,) = read_model(folder / "c.onnx", ["x=linear"]).declarations
    assert changed.kind == "linear"
    with pytest.raises(UsageError, match="GP218"):
        read_model(folder / "a.onnx", ["x"])
