"""Pipelines as jobs: to a file or a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import graphpass
from graphpass.engine.pipeline import parse
from graphpass.errors import UsageError
from graphpass.jobs.job import Job, Proof
from graphpass.jobs.run import is_model_file, run, stale
from graphpass.jobs.watch import Watch
from graphpass.storage import copying_ahead, kernel_copy
from graphpass.storage.copying_ahead import take_copy
from graphpass.testing import tiny_model

FUSED = parse("to-openvino,fuse-attention")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    graphpass.save(tiny_model("llama", layers=1), tmp_path / "in" / "model.onnx")
    return Job(tmp_path / "in", tmp_path / "out", False, (), "auto")


def test_a_folder_gets_a_model_of_the_last_dialect(job):
    outcome = run(job, FUSED, Watch())
    assert outcome.graphs == (job.output / "openvino_model.xml",)
    assert {file.name for file in job.output.iterdir()} == {
        "graphpass.json",
        "openvino_model.bin",
        "openvino_model.xml",
    }
    assert [record.step.name for record in outcome.models[0].records] == ["to-openvino", "fuse-attention"]


def test_weights_are_copied_while_models_are_compared(job, monkeypatch):
    run(job, FUSED, Watch())
    monkeypatch.setattr(copying_ahead, "LARGE", 1)
    taken = []
    monkeypatch.setattr(kernel_copy, "take_copy", lambda *files: taken.append(take_copy(*files)) or taken[-1])
    again = replace(job, model=job.output, output=job.output.with_name("again"), verify=True)
    run(again, FUSED[1:], Watch())
    assert taken == [True]
    assert (again.output / "openvino_model.bin").read_bytes() == (job.output / "openvino_model.bin").read_bytes()


def test_a_file_is_written_beside_its_manifest(job):
    file = job.output / "made.onnx"
    outcome = run(replace(job, output=file, if_changed=True), parse("fuse-functions"), Watch())
    assert outcome.graphs == (file,)
    assert file.is_file()
    again = replace(job, output=file, if_changed=True)
    assert stale(again, parse("fuse-functions")) is None
    assert run(again, parse("fuse-functions"), Watch()).up_to_date
    assert stale(again, parse("inline-functions")) is not None


def test_a_file_of_the_other_dialect_is_refused(job):
    with pytest.raises(UsageError) as error:
        run(replace(job, output=job.output / "made.onnx"), FUSED, Watch())
    assert error.value.id == "GP202"


def test_results_are_verified_on_request(job):
    proof = Proof(steps=0, require="proven")
    outcome = run(replace(job, verify=True, proof=proof), FUSED, Watch())
    assert outcome.comparison.is_proven
    assert (job.output / "graphpass.json").is_file()


@pytest.mark.parametrize(
    ("name", "expected"), [("a.onnx", True), ("a.XML", True), ("a.bin", False), ("a", False), ("folder.onnx", False)]
)
def test_names_of_model_files(tmp_path, name, expected):
    (tmp_path / "folder.onnx").mkdir()
    assert is_model_file(tmp_path / name) is expected
