"""Conversions as jobs: what is observed, refused and kept."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.folders import folder_contents
from support.models import export

import graphpass
from graphpass.engine.pipeline import parse_target
from graphpass.errors import UnsupportedError, UsageError
from graphpass.jobs.convert import convert, stale
from graphpass.jobs.job import Job, UnequalError
from graphpass.jobs.watch import Watch
from graphpass.testing import tiny_model

CPU = parse_target("cpu")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("source")
    graphpass.save(tiny_model("llama", layers=1), folder / "model.onnx")
    return folder


@pytest.fixture
def job(source: Path, tmp_path: Path) -> Job:
    return Job(source, tmp_path / "out", False, (), "auto")


def test_models_are_looked_at_before_they_are_written(job):
    seen = []

    def look(reports):
        seen.append(("look", [report.file for report in reports], job.output.exists()))

    def gate(folder, outcome):
        seen.append(("gate", sorted(file.name for file in folder.iterdir()), outcome.graphs, job.output.exists()))

    outcome = convert(job, CPU, Watch(), look=look, gate=gate)
    graphs = (job.output / "openvino_model.xml",)
    files = ["graphpass.json", "openvino_model.bin", "openvino_model.xml"]
    assert seen == [("look", ["openvino_model.xml"], False), ("gate", files, graphs, False)]
    assert outcome.graphs == graphs
    assert outcome.contract.holds
    assert (outcome.comparison, outcome.up_to_date, outcome.target) == (None, False, "cpu")
    assert [report.name for report in outcome.models] == [""]


def test_a_gate_keeps_the_earlier_result(job):
    convert(job, CPU, Watch())
    before = folder_contents(job.output)

    def gate(*_):
        raise RuntimeError("changed")

    with pytest.raises(RuntimeError, match="changed"):
        convert(job, parse_target("cpu{cache=reorder}"), Watch(), gate=gate)
    assert folder_contents(job.output) == before


def test_a_result_is_stale_if_target_or_options_change(job):
    once = replace(job, if_changed=True)
    assert stale(once, CPU) is not None
    convert(once, CPU, Watch())
    assert stale(once, CPU) is None
    again = convert(once, CPU, Watch())
    assert (again.up_to_date, again.graphs) == (True, (job.output / "openvino_model.xml",))
    assert stale(once, parse_target("cpu{cache=reorder}")) is not None
    assert stale(once, CPU, allow_unfused=True) is not None
    assert stale(replace(once, declared=("past.0.key=kv,sequence=2",)), CPU) is not None


def test_weights_in_files_of_limited_size_cannot_be_shared(job):
    with pytest.raises(UsageError, match="writes weights to files of limited size") as error:
        convert(replace(job, weights="share"), parse_target("web"), Watch())
    assert error.value.id == "GP230"


def test_a_part_of_an_encoder_and_its_decoder_is_noted(tmp_path):
    class Notes(Watch):
        def note(self, text):
            notes.append(text)

    notes: list[str] = []
    folder = export("t5", "onnx")
    job = Job(folder / "encoder_model.onnx", tmp_path / "out", False, (), "auto")
    convert(job, CPU, Notes())
    assert notes == [
        f"{folder / 'encoder_model.onnx'} is one part of the model in {folder}; pass the folder to convert all parts"
    ]
    with pytest.raises(UsageError) as error:
        convert(replace(job, model=folder), parse_target("cpu{cache=reorder}"), Watch())
    assert error.value.id == "GP226"


@pytest.mark.slow
def test_an_encoder_and_its_decoder_are_two_parts(tmp_path):
    job = Job(export("t5", "onnx"), tmp_path / "out", False, (), "auto")
    outcome = convert(job, CPU, Watch())
    assert [report.name for report in outcome.models] == ["encoder", "decoder"]
    assert [graph.name for graph in outcome.graphs] == ["openvino_encoder_model.xml", "openvino_decoder_model.xml"]


def test_an_unequal_result_is_not_written(job, monkeypatch):
    passes = CPU.pipeline(graphpass.load(job.model))
    scaled = type(passes[-1])

    def wrong(self, model):
        rewriter = model.rewriter()
        logits = model.graph.writes["logits"]
        write = rewriter.under("wrong")
        rewriter.redirect(logits, 0, write.op("Multiply", logits.source(), write.number(2.0, "f32")))
        rewriter.finish()
        return right(self, model)

    right = scaled.run
    monkeypatch.setattr(scaled, "run", wrong)
    with pytest.raises(UnequalError) as error:
        convert(replace(job, verify=True), CPU, Watch())
    assert error.value.id == "GP601"
    assert not job.output.exists()


def test_a_broken_contract_is_allowed_on_request(tmp_path):
    graphpass.save(tiny_model("gemma2", layers=1), tmp_path / "in" / "model.onnx")
    job = Job(tmp_path / "in", tmp_path / "out", False, (), "auto")
    with pytest.raises(UnsupportedError) as error:
        convert(job, CPU, Watch())
    assert error.value.id == "GP350"
    assert not job.output.exists()
    assert not convert(job, CPU, Watch(), allow_unfused=True).contract.holds


def test_the_input_is_not_overwritten(source, tmp_path):
    folder = shutil.copytree(source, tmp_path / "in")
    with pytest.raises(UsageError) as error:
        convert(Job(folder, folder, False, (), "auto"), parse_target("ort"), Watch())
    assert error.value.id == "GP203"
