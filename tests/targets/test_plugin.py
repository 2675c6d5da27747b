"""A third party's target is checked, confirmed, printed and serialized as those of graphpass are."""

import json

import pytest
from support.commands import in_process
from support.models import export
from support.plugins import distribution, plugin_paths
from support.report_schemas import assert_valid_report

import graphpass
from graphpass.engine.findings import Observation

LLAMA = export("llama", "ov-stateful")


@pytest.fixture(autouse=True)
def _sample(tmp_path, monkeypatch):
    for path in plugin_paths("sample_plugin", tmp_path / "plugin"):
        monkeypatch.syspath_prepend(path)


@pytest.fixture
def target():
    return type(graphpass.get_target("sample"))


def converted(capfd, folder, *options):
    return in_process(capfd, "convert", LLAMA, "-o", folder, "--target", "sample", "--no-tokenizer", *options)


def test_a_converted_model_keeps_the_contract(capfd, tmp_path):
    done = converted(capfd, tmp_path / "out")
    assert done.code == 0
    assert "contract  holds; confirmed: ran the sample runtime" in done.out
    done = in_process(capfd, "check", tmp_path / "out", "--target", "sample")
    assert done.code == 0
    assert "for sample\n\n  layers 0-1  taken  4 caches\n\nconfirmed: ran the" in done.out


def test_check_reports_the_node_breaking_the_contract(capfd):
    done = in_process(capfd, "check", LLAMA, "--target", "sample{factor=2}")
    assert done.code == 1
    assert done.out.endswith("\n\nthe contract does not hold\n")
    assert "\n  model       refused  " in done.out
    assert "MatMul: expected Multiply, got MatMul\n      rule: sample/runtime.cpp\n" in done.out
    assert "\nconfirmed: the runtime refused it: output is not scaled" in done.out


@pytest.mark.parametrize("options", [(), ("--no-confirm",)])
def test_json_follows_the_schema(capfd, options):
    done = in_process(capfd, "check", LLAMA, "--target", "sample{factor=2}", "--format", "json", *options)
    told = json.loads(done.out)
    assert_valid_report(told, "check")
    assert (told["holds"], told["target"], done.code) == (False, "sample{factor=2.0}", 1)


def test_a_model_breaking_the_contract_is_not_written(capfd, tmp_path, monkeypatch, target):
    monkeypatch.setattr(target, "pipeline", lambda self, model: ())
    done = converted(capfd, tmp_path / "out")
    assert done.code == 4
    assert done.err.startswith("error: GP350: the result does not keep the contract of target sample: ")
    assert not (tmp_path / "out" / "openvino_model.xml").exists()


def test_a_wrong_prediction_is_contradicted(capfd, tmp_path, monkeypatch, target):
    monkeypatch.setattr(target, "observe", lambda self, model: Observation("tried it", refused="no"))
    done = converted(capfd, tmp_path / "out", "--allow-unfused")
    assert (
        "contract  does not hold; contradicted: the runtime refused it: no\n  no refusal was predicted, but: no\n"
        in done.out
    )
    done = in_process(capfd, "check", tmp_path / "out", "--target", "sample")
    assert done.code == 1
    assert "contradicted: the runtime refused it: no\n  no refusal was predicted, but: no\n" in done.out


def test_a_missing_runtime_confirms_nothing(capfd, monkeypatch, target):
    monkeypatch.setenv("SAMPLE_RUNTIME", "none")
    out = in_process(capfd, "check", LLAMA, "--target", "sample").out
    assert "\nnot confirmed: the sample runtime is not installed here" in out
    monkeypatch.delattr(target, "observe")
    assert "\nnot confirmed: target sample has no trial" in in_process(capfd, "check", LLAMA, "--target", "sample").out


def test_onnx_must_be_converted_for_the_target_first(capfd):
    done = in_process(capfd, "check", export("llama", "onnx"), "--target", "sample")
    assert done.code == 1
    assert "sample runs OpenVINO IR: run graphpass convert first\n" in done.out


def test_a_target_without_rules_converts_with_a_note(capfd, tmp_path, monkeypatch, target):
    marked = "contract: OpenVINO IR; graphpass check has its rules\n"
    assert marked in in_process(capfd, "targets").out.partition("\nsample\n")[2]
    monkeypatch.delattr(target, "predict")
    done = in_process(capfd, "check", LLAMA, "--target", "sample")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: GP223: target sample has no rules\nhint: graphpass targets marks ")
    assert marked not in in_process(capfd, "targets").out.partition("\nsample\n")[2]
    assert converted(capfd, tmp_path / "out").code == 0


def test_its_view_is_printed_with_the_others(capfd):
    assert (
        "agrees          openvino.genai, optimum-intel, NPUW, sample runtime\n"
        in in_process(capfd, "inspect", LLAMA).out
    )
    out = in_process(capfd, "inspect", export("mamba", "ov-stateful")).out
    assert "  sample runtime will overlook cache_params.past." in out


def test_a_broken_plugin_has_no_view_and_breaks_no_other(capfd, tmp_path, monkeypatch):
    points = {"graphpass.targets": {"torn": "no_such:Target", "cpu": "other:CPU"}}
    monkeypatch.syspath_prepend(distribution(tmp_path / "torn", "torn-targets", points))
    done = in_process(capfd, "inspect", LLAMA)
    assert (done.code, done.err) == (0, "")
    assert "NPUW, sample runtime\n" in done.out
