"""Splits as jobs: a prefill and a decode model with shared weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import graphpass
from graphpass.engine.split import Split
from graphpass.errors import UsageError
from graphpass.jobs.job import Job
from graphpass.jobs.split import split_model
from graphpass.jobs.watch import Watch
from graphpass.testing import run, tiny_model

SIZES = Split(8, 4, 16)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    graphpass.save(tiny_model("llama", layers=1), tmp_path / "in" / "model.onnx")
    return Job(tmp_path / "in", tmp_path / "out", True, (), "auto")


def shapes(folder: Path) -> dict[str, list[object]]:
    return {
        name: [port.shape for port in graphpass.load(folder / f"{name}.onnx").inputs[:3]]
        for name in ("prefill", "decode")
    }


def test_both_models_are_static_and_compared(job):
    outcome = split_model(job, SIZES, None, Watch())
    assert outcome.compared > 20
    assert outcome.text().endswith(f"same: {outcome.compared} positions compared, after prompts of 1 to 8 tokens")
    assert shapes(job.output) == {"prefill": [(1, 4), (1, 12), (1, 4)], "decode": [(1, 1), (1, 17), (1, 1)]}
    content = outcome.to_json()
    assert (content["prompt"], content["chunk"], content["capacity"]) == (8, 4, 16)
    assert content["graphs"] == [str(job.output / f"{name}.onnx") for name in ("prefill", "decode")]


def test_unverified_models_are_reported_as_such(job):
    outcome = split_model(replace(job, verify=False), SIZES, "openvino", Watch())
    assert outcome.compared is None
    text = outcome.text()
    assert text.endswith("not verified (--no-verify)")
    assert "prefill.bin and decode.bin are hard links to one file" in text
    assert (job.output / "prefill.bin").samefile(job.output / "decode.bin")
    assert outcome.preparation.records[0].step.name == "to-openvino"


def test_openvino_ir_does_not_become_onnx(job, tmp_path):
    graphpass.save(run(tiny_model("llama", layers=1), "to-openvino"), tmp_path / "ir" / "model.xml")
    with pytest.raises(UsageError) as error:
        split_model(replace(job, model=tmp_path / "ir"), SIZES, "onnx", Watch())
    assert error.value.id == "GP268"


def test_the_input_is_not_overwritten(job, tmp_path):
    (tmp_path / "in" / "model.onnx").rename(tmp_path / "in" / "decode.onnx")
    with pytest.raises(UsageError) as error:
        split_model(replace(job, output=tmp_path / "in"), SIZES, None, Watch())
    assert error.value.id == "GP203"
