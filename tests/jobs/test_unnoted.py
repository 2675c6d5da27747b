"""Weight files are recorded by identity, if they cannot change unseen."""

import os

import onnx
import pytest

import graphpass
from graphpass.jobs.unnoted import is_of, remember_weights
from graphpass.testing import parse_model


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = parse_model(
        "%x = Parameter : f32[4, 64]\n%w = Constant : f32[64, 64]\n%y = MatMul(%x, %w)\nResult(%y) {name=y}"
    )
    onnx.save(model.proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "graphpass.json").write_text("{}")
    age(tmp_path / "m.data", 100)
    return tmp_path


def age(file, seconds):
    time = file.stat().st_mtime - seconds
    os.utime(file, (time, time))


def read(folder):
    return [graphpass.load(folder / "m.onnx")]


def test_the_same_files_are_recognized(stored):
    manifest = stored / "graphpass.json"
    assert not is_of(manifest, read(stored))
    remember_weights(manifest, read(stored))
    assert is_of(manifest, read(stored))


def test_a_changed_file_or_manifest_is_not(stored):
    manifest = stored / "graphpass.json"
    remember_weights(manifest, read(stored))
    manifest.write_text('{"n": 1}')
    assert not is_of(manifest, read(stored))
    manifest.write_text("{}")
    assert is_of(manifest, read(stored))
    age(stored / "m.data", 50)
    assert not is_of(manifest, read(stored))


def test_files_that_were_just_written_are_not_recorded(stored):
    age(stored / "m.data", -100)
    manifest = stored / "graphpass.json"
    remember_weights(manifest, read(stored))
    assert not is_of(manifest, read(stored))
