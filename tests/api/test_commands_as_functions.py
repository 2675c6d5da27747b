"""Commands as functions: their results print and serialize as the commands do."""

import json
import subprocess
import sys
from dataclasses import is_dataclass
from pathlib import Path

import pytest
from support.commands import in_process
from support.models import export

import graphpass


def test_inspect_prints_as_the_command(capfd):
    model = export("llama", "onnx")
    found = graphpass.inspect(model)
    assert found.inventory.kind == "kv"
    assert str(found) == in_process(capfd, "inspect", model).out.rstrip("\n")
    printed = json.loads(in_process(capfd, "inspect", model, "--format", "json").out)
    assert printed | json.loads(json.dumps(found.to_json())) == printed
    assert "<html" in found.to_html("llama")
    assert graphpass.inspect(found.model).inventory == found.inventory


def test_check_prints_as_the_command(capfd):
    model = export("llama", "onnx")
    found = graphpass.check(model, "cpu", confirm=False)
    done = in_process(capfd, "check", model, "--target", "cpu", "--no-confirm")
    assert found.holds is (done.code == 0)
    assert str(found) == done.out.rstrip("\n")
    assert found.to_json()["target"] == "cpu"


def test_check_of_an_encoder_and_its_decoder():
    assert graphpass.check(export("t5", "onnx"), "cpu", confirm=False).model.path.name.startswith("decoder")


def test_diff_prints_as_the_command(capfd):
    models = export("llama", "ov-stateless"), export("llama", "ov-stateful")
    found = graphpass.diff(*models)
    done = in_process(capfd, "diff", *models)
    assert (found.same, done.code) == (False, 1)
    assert str(found) == done.out.rstrip("\n")
    assert found.to_json()["same"] is False
    assert graphpass.diff(found.before, found.before).same


def test_converted_models_verify(tmp_path):
    model = export("llama", "onnx")
    proof = graphpass.Proof(steps=2)
    outcome = graphpass.convert(model, tmp_path / "out", "cpu", proof=proof, html=tmp_path / "page.html")
    assert outcome.comparison.passed
    assert outcome.contract.holds
    assert "verified  same" in str(outcome)
    assert json.loads(json.dumps(outcome.to_json()))["target"] == "cpu"
    assert "<html" in (tmp_path / "page.html").read_text("utf-8")
    assert graphpass.convert(model, tmp_path / "out", "cpu", proof=proof, if_changed=True).up_to_date
    comparison = graphpass.verify(model, tmp_path / "out", steps=2)
    assert comparison.passed
    assert str(comparison).startswith("same: ")


def test_split_writes_two_models(tmp_path):
    outcome = graphpass.split(
        export("llama", "ov-stateless"), tmp_path / "out", prompt=8, chunk=4, capacity=16, verify=False
    )
    assert {file.name for file in outcome.files} >= {"prefill.xml", "decode.xml"}
    assert outcome.to_json()["chunk"] == 4
    assert str(tmp_path / "out") in str(outcome)


def test_run_matrix_returns_each_cell(tmp_path):
    config = tmp_path / "graphpass.toml"
    model = json.dumps(str(export("llama", "onnx")))
    config.write_text(f'output = "out/{{model}}"\n[[models]]\nname = "m"\npath = {model}\ntargets = ["cpu"]\n')
    matrix = graphpass.run_matrix(config, select=["m:*"], jobs=1)
    assert matrix.exit_code == 0
    assert matrix.to_json()["counts"]["converted"] == 1
    matrix.write({"json": tmp_path / "report.json"})
    assert json.loads((tmp_path / "report.json").read_text())["exit_code"] == 0
    assert "1 cell: 1 up to date" in str(graphpass.run_matrix(tmp_path))


def test_run_matrix_reads_the_baseline_of_the_command(capfd, tmp_path):
    """It read the file of the key `baseline` alone."""
    (tmp_path / "graphpass.toml").write_text("[[models]]\npath = 'gone'\ntargets = ['cpu']\n")
    assert graphpass.run_matrix(tmp_path).exit_code == 1
    assert in_process(capfd, "ci", tmp_path, "--update-baseline").code == 0
    assert graphpass.run_matrix(tmp_path).exit_code == 0


def test_verify_is_a_function_and_a_package():
    lines = "import graphpass; before = graphpass.verify; from graphpass.verify import compare"
    assert (
        subprocess.run(
            [sys.executable, "-c", f"{lines}; assert callable(before) and graphpass.verify is before"]
        ).returncode
        == 0
    )
    assert callable(graphpass.verify)


@pytest.mark.parametrize("name", ["Check", "Comparison", "Diff", "Inspection", "Matrix", "Outcome", "SplitOutcome"])
def test_results_are_frozen_dataclasses(name):
    made = getattr(graphpass, name)
    assert is_dataclass(made)
    assert made.__dataclass_params__.frozen
    assert callable(made.to_json)
    assert made.__str__ is not object.__str__


def test_names_are_known_to_type_checkers_alone_by_the_package():
    """Type checkers take a module's ``__getattr__`` for a promise of any name."""
    source = Path(graphpass.__file__).read_text("utf-8")
    assert "def __getattr__" not in source
    for name in graphpass.__all__:
        assert f" {name} as {name}" in source or f"({name} as {name}" in source, name
