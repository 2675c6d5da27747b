"""Errors that are known when a model has been read come before its pipeline runs."""

import os
import shutil
from types import SimpleNamespace

import pytest
from support.commands import in_process
from support.folders import folder_contents
from support.models import export

from graphpass.engine.manager import PassManager


@pytest.fixture
def nothing_runs(monkeypatch):
    monkeypatch.setattr(PassManager, "run", lambda *_: pytest.fail("a pass ran"))


def convert(capfd, source, out, *options, target="cpu"):
    return in_process(capfd, "convert", source, "-o", out, "--target", target, "--no-verify", *options)


@pytest.mark.usefixtures("nothing_runs")
def test_unshareable_weights_are_refused(capfd, tmp_path, monkeypatch):
    done = convert(capfd, export("llama", "onnx"), tmp_path / "out", "--weights", "share")
    assert (done.code, done.err.partition(": these")[0][:12]) == (2, "error: GP230")

    def refuse(*_, **__):
        raise OSError(18, os.strerror(18))

    monkeypatch.setattr(os, "link", refuse)
    done = convert(capfd, export("llama", "ov-stateless"), tmp_path / "out", "--weights", "share")
    assert done.err.startswith("error: GP230: ")
    assert "openvino_model.bin cannot be shared: Invalid cross-device link" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("nothing_runs")
def test_a_disk_without_room_is_refused_in_advance(capfd, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    monkeypatch.setattr("graphpass.jobs.foresight.shares_blocks", lambda *_: False)
    done = convert(capfd, export("llama", "ov-stateless"), tmp_path / "out")
    assert done.code == 6
    size = (export("llama", "ov-stateless") / "openvino_model.bin").stat().st_size
    assert f"GP501: cannot write to {tmp_path / 'out'}: the weights have {size:,} bytes, and 1,000 are free" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--html", "file/page.html"], "GP501"),
        (["--html", "."], "GP501"),
        (["--budget", "much"], "GP250"),
        (["-o", "file/out"], "GP501"),
    ],
)
def test_wrong_places_and_settings_are_refused_in_advance(capfd, tmp_path, monkeypatch, options, error):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = convert(capfd, export("llama", "ov-stateless"), "out", *options)
    assert done.err.startswith(f"error: {error}: "), done.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("nothing_runs")
def test_a_name_of_the_other_dialect(capfd, tmp_path):
    out = tmp_path / "model.onnx"
    done = in_process(capfd, "run", export("llama", "onnx"), "-o", out, "-p", "to-openvino,fuse-attention")
    assert (done.code, done.err.split(":")[1]) == (2, " GP202")


@pytest.fixture
def for_ort(tmp_path, capfd):
    out = tmp_path / "out"
    assert convert(capfd, export("llama", "onnx"), out, target="ort").code == 0
    (out / "notes.txt").write_text("the user's own")
    return out


def test_another_target_is_refused(capfd, for_ort, monkeypatch):
    before = folder_contents(for_ort)
    monkeypatch.setattr(PassManager, "run", lambda *_: pytest.fail("a pass ran"))
    done = convert(capfd, export("llama", "onnx"), for_ort)
    assert done.code == 2
    assert done.err.startswith(f"error: GP238: {for_ort} has another result, model.onnx; ")
    assert "--replace" in done.err
    assert folder_contents(for_ort) == before


def test_another_target_replaces_the_result(capfd, for_ort, tmp_path):
    assert convert(capfd, export("llama", "onnx"), for_ort, "--replace").code == 0
    assert convert(capfd, export("llama", "onnx"), tmp_path / "fresh").code == 0
    assert folder_contents(for_ort) == folder_contents(tmp_path / "fresh") | {
        "notes.txt": folder_contents(for_ort)["notes.txt"]
    }
    assert in_process(capfd, "inspect", for_ort).code == 0


def test_obsolete_files_of_a_target_are_removed(capfd, tmp_path):
    source = shutil.copytree(export("llama", "onnx"), tmp_path / "in")
    assert convert(capfd, source, tmp_path / "out").code == 0
    (source / "generation_config.json").unlink()
    assert convert(capfd, source, tmp_path / "out").code == 0
    assert not (tmp_path / "out" / "generation_config.json").exists()


def test_the_input_is_never_replaced(capfd, for_ort, monkeypatch):
    before = folder_contents(for_ort)
    monkeypatch.setattr(PassManager, "run", lambda *_: pytest.fail("a pass ran"))
    done = convert(capfd, for_ort, for_ort, "--replace")
    assert (done.code, done.err.split(":")[1]) == (2, " GP203")
    assert folder_contents(for_ort) == before
