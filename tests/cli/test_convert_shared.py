"""Results that share the weights of their input."""

import onnx
import pytest
from support.commands import in_process
from support.models import export


@pytest.fixture
def source(tmp_path):
    """An ONNX model with its weights in a file of its own, of which nothing is remembered."""
    folder = tmp_path / "in"
    folder.mkdir()
    model = onnx.load(export("llama", "onnx") / "model.onnx")
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="data")
    return folder


def test_a_result_appending_to_the_weights_of_the_input_is_certified(capfd, tmp_path, monkeypatch, source):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "out"
    size = (source / "data").stat().st_size
    options = ("convert", source, out, "--target", "cpu", "--weights", "share", "--if-changed")
    done = in_process(capfd, *options)
    assert done.code == 0, done.err
    assert (source / "data").stat().st_size > size
    assert (out / "openvino_model.bin").samefile(source / "data")
    assert in_process(capfd, "verify", "--certificate", out).code == 0
    assert "up to date" in in_process(capfd, *options).out


@pytest.mark.slow
def test_cells_appending_to_the_weights_of_one_model(capfd, tmp_path, monkeypatch, source):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graphpass.toml").write_text(
        "[defaults]\nweights = 'share'\nsteps = 1\n[[models]]\npath = 'in'\ntargets = ['cpu', 'gpu']\n"
    )
    done = in_process(capfd, "ci", "--jobs", "2", "--retries", "0")
    assert done.code == 0, done.err
    assert "2 up to date" in in_process(capfd, "ci").out
