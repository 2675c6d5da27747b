"""One cell of a matrix, as a worker process converts it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import in_process
from support.folders import folder_contents
from support.models import export
from support.scale import scaled

from graphpass.artifacts.manifest import RESULT_FILE
from graphpass.matrix.cell_memory import pictures_of
from graphpass.matrix.cells import Budgets, Cell, Settings
from graphpass.matrix.work import run_cell

pytestmark = pytest.mark.usefixtures("cache_folder")


def cell_of(folder, source, target="cpu", **settings):
    out = str(folder / "out")
    return Cell("m", target, str(source), out, target, None, out, Settings(**({"verify": False} | settings)))


def test_a_cell_is_converted_once(tmp_path):
    source = shutil.copytree(export("llama", "ov-stateless"), tmp_path / "in")
    cell = cell_of(tmp_path, source, allow=("/guard/Equal",))
    first = run_cell(cell)
    assert (first.state, first.changed, first.exit_code) == ("converted", None, 0)
    assert first.file == str(source / "openvino_model.xml")
    manifest = json.loads((tmp_path / "out" / "graphpass.json").read_text())
    assert manifest["options"]["proof"]["allow"] == ["/guard/Equal"]
    assert json.loads((tmp_path / "out" / RESULT_FILE).read_text())["cell"]["id"] == "m:cpu"
    before = folder_contents(tmp_path / "out")
    (picture,) = pictures_of(cell)
    assert [group["layers"] for group in picture["groups"]] == [[], [0, 1], []]
    second = run_cell(cell)
    assert (second.state, second.changed, second.problems) == ("up to date", False, first.problems)
    assert second.outcome == json.loads(json.dumps(first.outcome))
    assert folder_contents(tmp_path / "out") == before


@pytest.mark.slow
def test_differences_from_the_published_result_are_reported(tmp_path):
    source = shutil.copytree(export("llama", "ov-stateless"), tmp_path / "in")
    cell = cell_of(tmp_path, source)
    assert run_cell(cell).changed is None
    other = replace(cell, label="x", target=None, pipeline="fuse-attention")
    found = run_cell(other)
    assert (found.state, found.changed) == ("converted", True)
    assert "-4 ReadValue" in found.changes
    again = run_cell(replace(other, settings=Settings(verify=False, tokenizer=False, steps=3)))
    assert (again.state, again.changed, again.changes) == ("converted", False, ())


@pytest.mark.parametrize(
    ("model", "variant", "target", "exit_code", "rule", "node"),
    [
        pytest.param("llama", "onnx-nocache", "cpu", 4, "GP302", "", marks=pytest.mark.slow),
        pytest.param("gemma2", "onnx", "cpu", 4, "GP350", "/model/layers.0/self_attn/Softmax", marks=pytest.mark.slow),
        ("llama", "ov-stateless", "cpuu", 2, "GP215", ""),
        ("llama", "nowhere", "cpu", 3, "GP101", ""),
    ],
)
def test_a_failed_cell_leaves_no_files(tmp_path, model, variant, target, exit_code, rule, node):
    source = Path(export(model, "onnx")).parent / variant
    result = run_cell(cell_of(tmp_path, source, target))
    assert (result.state, result.exit_code) == ("failed", exit_code)
    assert (result.problems[0].rule, result.problems[0].level, result.problems[0].node) == (rule, "error", node)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_allowed_broken_contract_is_a_warning(tmp_path):
    result = run_cell(cell_of(tmp_path, export("gemma2", "onnx"), allow_unfused=True))
    assert (result.state, result.exit_code) == ("converted", 0)
    assert {(problem.rule, problem.level) for problem in result.problems if problem.level != "note"} == {
        ("GP350", "warning")
    }
    assert len(set(result.fingerprints)) == len(result.problems)


@pytest.mark.slow
@pytest.mark.parametrize(
    "budgets", [Budgets(bytes=10_000), Budgets(operators=20), Budgets(bytes_per_token=1), Budgets(seconds=0.001)]
)
def test_cells_over_budget_fail(tmp_path, budgets):
    result = run_cell(cell_of(tmp_path, export("llama", "ov-stateful"), budgets=budgets))
    assert (result.state, result.exit_code, result.problems[0].rule) == ("failed", 1, "GP602")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_published_result_may_be_elsewhere(tmp_path):
    source = export("llama", "ov-stateless")
    assert run_cell(cell_of(tmp_path / "old", source)).state == "converted"
    cell = replace(cell_of(tmp_path / "new", source), published=str(tmp_path / "old" / "out"))
    assert [(result.state, result.changed) for result in (run_cell(cell), run_cell(cell))] == [
        ("converted", False),
        ("up to date", False),
    ]
    other = replace(cell, target=None, pipeline="fuse-attention", output=str(tmp_path / "other"))
    assert [(result.state, result.changed) for result in (run_cell(other), run_cell(other))] == [
        ("converted", True),
        ("up to date", True),
    ]


@pytest.mark.slow
def test_a_result_of_convert_has_no_report(capfd, tmp_path):
    source = export("llama", "ov-stateless")
    cell = cell_of(tmp_path, source, allow_unfused=True)
    assert run_cell(cell).outcome["files"]
    pipeline = ["-o", tmp_path / "out", "--target", "cpu", "--no-verify", "--if-changed"]
    assert in_process(capfd, "convert", source, *pipeline).code == 0
    found = run_cell(replace(cell, settings=Settings(verify=False)))
    assert (found.state, found.outcome, found.problems, pictures_of(cell)) == ("up to date", {}, (), [])


@pytest.mark.slow
def test_pictures_of_shared_weights_are_drawn_before_these_grow(tmp_path):
    cell = cell_of(tmp_path, scaled("llama", "tiny", tmp_path / "in"), weights="share")
    assert run_cell(cell).problems == ()
    (picture,) = pictures_of(cell)
    assert picture["titles"] == ["before", "after"]
