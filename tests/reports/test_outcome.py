"""Lines about written files, shared weights and pipelines, and the report on an up-to-date result."""

from pathlib import Path

import pytest

import graphpass
from graphpass.io import Written
from graphpass.reports.outcome import ModelReport, Outcome, WrittenFile, files_in, files_text, passes_text, shared_json
from graphpass.testing import parse_model

FILES = (WrittenFile("a.onnx", 1000), WrittenFile("b/c.data", 2_000_000))
SHARED = (Written((Path("w.bin"),), 0), Written((Path("w.data"),), 12))
MODEL = parse_model("%x = Parameter : f32[4]\n%s = Sigmoid(%x)\n%y = Multiply(%x, %s)\nResult(%y) {name=y}", "openvino")


def test_files_are_summed_or_listed():
    assert files_text(Path("out"), FILES, (), ()) == ["written to out: 2 files, 2 MB"]
    assert files_text(Path("out"), FILES[:1], (), ()) == ["written to out: 1 file, 1 KB"]
    listed = files_text(Path("out"), FILES, (), ["a note"], verbose=True)
    assert listed == ["written to out", "  a.onnx (1 KB)", "  b/c.data (2 MB)", "  a note"]


def test_shared_weights_are_warned_of():
    _, first, second = files_text(Path("out"), FILES, SHARED, ())
    assert (
        first == "  WARNING: the weights are shared with w.bin: nothing was appended to it. Never edit either in place."
    )
    assert "12 bytes were appended to it" in second
    assert second.endswith("onnx.load refuses data files that are shared.")
    assert shared_json(SHARED) == [{"file": "w.bin", "appended": 0}, {"file": "w.data", "appended": 12}]


def test_few_notes_are_shown_unless_verbose():
    notes = [f"note {number}" for number in range(6)]
    assert (
        len(files_text(Path("out"), FILES, (), notes))
        < len(files_text(Path("out"), FILES, (), notes, verbose=True)) - 2
    )


def test_files_of_a_folder_with_its_subfolders(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/c.data").write_bytes(b"123")
    (tmp_path / "a.onnx").write_bytes(b"1")
    assert files_in(tmp_path) == (WrittenFile("a.onnx", 1), WrittenFile("b/c.data", 3))


@pytest.mark.parametrize("verbose", [False, True])
def test_passes_that_changed_nothing_are_left_out_unless_verbose(verbose):
    run = graphpass.PassManager(graphpass.parse("drop-constant-outputs,simplify-shapes")).run(MODEL)
    report = ModelReport("", "m.xml", MODEL, run.model, tuple(record.step for record in run.records), run.records)
    lines = passes_text(report, verbose=verbose)
    assert lines[0] == "pipeline  drop-constant-outputs,simplify-shapes"
    assert (
        len([line for line in lines[1:] if line.split()[0] in {"drop-constant-outputs", "simplify-shapes"}])
        == 2 * verbose
    )
    assert ("0 of 2 passes changed the model" in lines[-1]) == (not verbose)


def test_a_result_that_is_up_to_date_says_only_that():
    outcome = Outcome(Path("in"), Path("out"), (Path("out/m.onnx"),), (), "cpu", up_to_date=True)
    assert (
        outcome.text() == "out/m.onnx is up to date: the same input, pipeline, options and versions; nothing was done"
    )
    content = outcome.to_json()
    assert (content["up_to_date"], content["contract"], content["verification"]) == (True, None, None)


@pytest.mark.parametrize(("target", "said"), [("cpu", True), ("", False)])
def test_a_conversion_without_verification_says_so(target, said):
    outcome = Outcome(Path("in"), Path("out"), (Path("out/m.onnx"),), (), target, files=FILES)
    assert ("not verified (--no-verify)" in outcome.text()) == said
