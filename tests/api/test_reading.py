"""Models as arguments: files, folders, or loaded ones with declared caches."""

import pytest

import graphpass
from graphpass.api.reading import read_model
from graphpass.errors import UsageError
from graphpass.jobs.watch import Watch
from graphpass.testing import tiny_model


@pytest.fixture
def folder(tmp_path):
    graphpass.save(tiny_model("llama", layers=1), tmp_path / "model.onnx")
    return tmp_path


def test_paths_are_read_and_loaded_models_returned(folder):
    model = tiny_model("llama", layers=1)
    assert read_model(model, ("past.0.key=kv,sequence=2",), None) is model
    assert model.declarations == ()
    for source in (folder, str(folder), folder / "model.onnx"):
        assert read_model(source, (), None).digest() == model.digest()


def test_declarations_hold_for_paths(folder):
    (declared,) = read_model(folder, ("past.0.key=kv,sequence=2",), None).declarations
    assert (declared.name, declared.kind, declared.axes.sequence) == ("past.0.key", "kv", 2)


def test_a_watch_selects_one_of_several_models(folder):
    class Chooses(Watch):
        def choose(self, folder):
            return folder / "other.onnx"

    graphpass.save(tiny_model("qwen3", layers=1), folder / "other.onnx")
    with pytest.raises(UsageError) as error:
        read_model(folder, (), None)
    assert error.value.id == "GP201"
    assert read_model(folder, (), Chooses()).path == folder / "other.onnx"
