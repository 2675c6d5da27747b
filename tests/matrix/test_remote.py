"""Cells whose models and results have addresses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.models import export

from graphpass.artifacts.manifest import RESULT_FILE, damage
from graphpass.io import load
from graphpass.matrix.cells import Cell, Settings
from graphpass.matrix.work import run_cell
from graphpass.storage.addresses import StoredFolder

pytestmark = pytest.mark.usefixtures("cache_folder")


def cell_of(source, output, **settings):
    settings = Settings(**({"verify": False, "tokenizer": False} | settings))
    return Cell("m", "cpu", str(source), str(output), "cpu", None, str(output), settings)


def upload(memory, folder, to):
    for file in folder.iterdir():
        if file.is_file():
            memory.pipe_file(f"{to}/{file.name}", file.read_bytes())


def downloaded(memory, path, to):
    memory.get(path, str(to), recursive=True)
    return to


@pytest.fixture
def reads(memory, monkeypatch):
    """Names of the files that were fetched."""
    found = []
    fetch = StoredFolder.fetch

    def observed(self, names, folder):
        names = list(names)
        found.extend(names)
        fetch(self, names, folder)

    monkeypatch.setattr(StoredFolder, "fetch", observed)
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("file", ["", "/openvino_model.xml"])
def test_a_cell_between_addresses_is_converted_once(memory, reads, tmp_path, file):
    upload(memory, export("llama", "ov-stateless"), "/models/llama")
    cell = cell_of(f"memory://models/llama{file}", "memory://results/llama")
    first = run_cell(cell)
    assert (first.state, first.exit_code, first.problems) == ("converted", 0, ())
    assert first.file == "memory://models/llama/openvino_model.xml"
    assert "/tmp" not in json.dumps(first.to_json())
    assert first.outcome["graphs"] == ["memory://results/llama/openvino_model.xml"]
    out = downloaded(memory, "/results/llama", tmp_path / "out")
    assert damage(out / "graphpass.json") is None
    assert any(load(out).graph.of_op("ReadValue"))
    assert json.loads((out / RESULT_FILE).read_text()) == json.loads(json.dumps(first.to_json())) | {
        key: json.loads((out / RESULT_FILE).read_text())[key] for key in ("seconds", "memory", "manifest")
    }
    assert memory.ls("/results", detail=False) == ["/results/llama"]

    reads.clear()
    second = run_cell(cell)
    assert (second.state, second.problems, second.outcome) == ("up to date", (), json.loads(json.dumps(first.outcome)))
    assert reads == []


@pytest.mark.slow
def test_a_changed_model_is_converted_again_with_its_changes(memory):
    upload(memory, export("llama", "ov-stateless"), "/models/llama")
    cell = cell_of("memory://models/llama", "memory://results/llama")
    assert run_cell(cell).state == "converted"
    upload(memory, export("llama", "ov-stateful-int8"), "/models/llama")
    refused = run_cell(replace(cell, refuse_changes=True))
    assert [(problem.rule, problem.level) for problem in refused.problems] == [("GP603", "error")]
    before = memory.cat_file("/results/llama/graphpass.json")
    again = run_cell(cell)
    assert (again.state, again.changed) == ("converted", True)
    assert memory.cat_file("/results/llama/graphpass.json") != before
    assert run_cell(cell).state == "up to date"


@pytest.mark.slow
def test_files_without_a_manifest_are_not_a_result(memory):
    upload(memory, export("llama", "ov-stateless"), "/models/llama")
    cell = cell_of("memory://models/llama", "memory://results/llama")
    assert run_cell(cell).state == "converted"
    memory.rm_file("/results/llama/graphpass.json")
    assert run_cell(cell).state == "converted"
    memory.rm_file("/results/llama/openvino_model.bin")
    assert run_cell(cell).state == "converted"
    assert run_cell(cell).state == "up to date"


@pytest.mark.slow
def test_addresses_and_paths_mix(memory, tmp_path):
    upload(memory, export("llama", "ov-stateless"), "/models/llama")
    here = cell_of("memory://models/llama", tmp_path / "out")
    assert run_cell(here).state == "converted"
    assert damage(tmp_path / "out" / "graphpass.json") is None
    assert run_cell(here).state == "up to date"
    there = cell_of(export("llama", "ov-stateless"), "memory://results/llama")
    assert run_cell(there).state == "converted"
    assert memory.exists("/results/llama/graphpass.json")


@pytest.mark.slow
def test_unreferenced_weights_are_not_downloaded(memory, reads):
    upload(memory, export("llama", "ov-stateless"), "/models/llama")
    large = b"\0" * (65 * 2**20)
    memory.pipe_file("/models/llama/pytorch_model.bin", large)
    assert run_cell(cell_of("memory://models/llama", "memory://results/llama")).state == "converted"
    assert "pytorch_model.bin" not in reads
    assert "openvino_model.bin" in reads


@pytest.mark.parametrize(
    ("source", "output", "rule"),
    [
        ("memory://models/nothing", "memory://results/x", "GP101"),
        ("nosuch://models/x", "memory://results/x", "GP236"),
        ("memory://models/broken", "memory://results/x", "GP106"),
        ("memory://models/torn/model.onnx", "memory://results/x", "GP104"),
    ],
)
def test_a_failed_cell_publishes_nothing(memory, source, output, rule):
    memory.pipe_file("/models/broken/openvino_model.xml", b"<net")
    memory.pipe_file("/models/broken/openvino_model.bin", b"")
    memory.pipe_file("/models/torn/model.onnx", b"torn")
    result = run_cell(cell_of(source, output))
    assert (result.state, [problem.rule for problem in result.problems]) == ("failed", [rule])
    assert "/tmp" not in result.problems[0].message
    assert source in result.problems[0].message
    assert not memory.exists("/results/x")
    assert not memory.glob("/results/.graphpass-*")


@pytest.mark.slow
def test_interrupted_uploads_keep_the_old_result(memory, monkeypatch):
    upload(memory, export("llama", "ov-stateless"), "/models/llama")
    cell = cell_of("memory://models/llama", "memory://results/llama")
    assert run_cell(cell).state == "converted"
    before = {path: memory.cat_file(path) for path in memory.find("/results")}
    upload(memory, export("llama", "ov-stateful-int8"), "/models/llama")

    def broken(self, local, remote, **_):
        if remote.endswith(".bin"):
            raise ConnectionResetError("the line is dead")
        type(self).put_file.original(self, local, remote)

    broken.original = type(memory).put_file
    monkeypatch.setattr(type(memory), "put_file", broken)
    failed = run_cell(cell)
    assert [problem.rule for problem in failed.problems] == ["GP505"]
    assert "the line is dead" in failed.problems[0].message
    assert {path: memory.cat_file(path) for path in memory.find("/results")} == before
    monkeypatch.undo()


@pytest.mark.slow
def test_a_killed_publication_leaves_no_result(memory, monkeypatch):
    upload(memory, export("llama", "ov-stateless"), "/models/llama")
    cell = cell_of("memory://models/llama", "memory://results/llama")
    assert run_cell(cell).state == "converted"
    upload(memory, export("llama", "ov-stateful-int8"), "/models/llama")

    def killed(self, source, target, **_):
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "cp_file", killed)
        with pytest.raises(SystemExit):
            run_cell(cell)
    assert not memory.exists("/results/llama/graphpass.json")
    assert run_cell(cell).state == "converted"
    assert run_cell(cell).state == "up to date"


@pytest.mark.slow
def test_file_addresses_equal_paths(tmp_path):
    shutil.copytree(export("llama", "ov-stateless"), tmp_path / "in")
    cell = cell_of((tmp_path / "in").as_uri(), (tmp_path / "out").as_uri())
    assert run_cell(cell).state == "converted"
    assert damage(Path(tmp_path, "out", "graphpass.json")) is None
    assert run_cell(cell).state == "up to date"
