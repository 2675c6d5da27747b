"""JSON of commands is as ``docs/json.md`` says; that of inspect, check and diff is tested in tests/cli."""

from __future__ import annotations

import importlib
import json
import shutil

import pytest
from support.commands import in_process
from support.models import export
from support.report_schemas import assert_valid_report

import graphpass
from graphpass.cli.main import COMMANDS
from graphpass.verify.comparison import Comparison, Divergence, SequenceRun


def command_of(name):
    return importlib.import_module(f"graphpass.cli.{name.replace('-', '_')}").command


@pytest.mark.parametrize("options", [(), ("--edits",)])
def test_json_of_verify_follows_its_schema(capfd, options):
    llama = export("llama", "ov-stateful")
    done = in_process(capfd, "verify", llama, llama, "--steps", "2", "--format", "json", *options)
    assert_valid_report(json.loads(done.out), "verify")
    assert done.code == 0


def test_verify_of_different_models():
    run = SequenceRun("prompt of 1 token", ((1,),), 0, ((2,),), ((3,),))
    divergence = Divergence(0, 0, "logits", (0, 0, 7), float("nan"), -float("inf"), "nan against -inf", ("trim 2",))
    comparison = Comparison((run,), ("logits",), 0.5, divergence, ("logits of the past",))
    assert_valid_report(json.loads(json.dumps(comparison.to_json(), allow_nan=False)), "verify")


@pytest.mark.parametrize(
    ("command", "model", "variant", "output", "manifest"),
    [
        (("convert", "--target", "cpu", "--no-verify"), "t5", "onnx", "out", "out/graphpass.json"),
        (("convert", "--target", "cpu", "--no-verify", "--if-changed"), "llama", "onnx", "out", "out/graphpass.json"),
        (("run", "-p", "make-stateful"), "llama", "ov-stateless", "m.xml", "m.xml.graphpass.json"),
        (("run", "-p", "unpack"), "llama", "ov-stateful", "m.xml", "m.xml.graphpass.json"),
    ],
    ids=["encoder and decoder", "convert", "run", "run without a change"],
)
def test_manifests_follow_their_schema(capfd, tmp_path, command, model, variant, output, manifest):
    name, *options = command
    done = in_process(capfd, name, export(model, variant), "-o", tmp_path / output, *options)
    assert done.code == 0, done.err
    assert_valid_report(json.loads((tmp_path / manifest).read_text()), "manifest")


@pytest.mark.parametrize(
    ("command", "model", "variant", "schema"),
    [
        pytest.param(("convert", "--target", "cpu"), "llama", "ov-stateless", "result", marks=pytest.mark.slow),
        pytest.param(("convert", "--target", "cpu"), "t5", "onnx", "result", marks=pytest.mark.slow),
        (("run", "-p", "unpack,fuse-attention", "--verify", "--weights", "share"), "llama", "ov-stateless", "result"),
        pytest.param(
            ("split", "--prompt", "8", "--capacity", "16"), "llama", "ov-stateless", "split", marks=pytest.mark.slow
        ),
    ],
    ids=["convert", "encoder and decoder", "run", "split"],
)
def test_json_of_results_follows_its_schema(capfd, tmp_path, command, model, variant, schema):
    source = shutil.copytree(export(model, variant), tmp_path / "in")
    name, *options = command
    done = in_process(capfd, name, source, "-o", tmp_path / "out", *options, "--format", "json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert_valid_report(told, schema)
    assert {file["name"] for file in told["files"]} == {file.name for file in (tmp_path / "out").iterdir()}
    if told.get("verification") is not None:
        assert_valid_report(told["verification"], "verify")
    assert all(graphpass.load(graph) for graph in told["graphs"])


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (("why", export("gemma2", "onnx"), "past_key_values.1.value"), "why"),
        pytest.param(
            ("why", export("mamba", "ov-stateful"), "cache_params.past.conv.0"), "why", marks=pytest.mark.slow
        ),
        (("passes",), "passes"),
        (("targets",), "targets"),
        (("explain", "make-stateful"), "explain"),
        (("explain", "gp203"), "explain"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_json_of_explanations_follows_its_schema(capfd, arguments, schema):
    done = in_process(capfd, *arguments, "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert_valid_report(json.loads(done.out), schema)


def test_every_command_prints_json():
    without = {name for name in COMMANDS if "form" not in {one.name for one in command_of(name).params}}
    assert without == {"bundle", "completion", "new-pass", "new-target", "print", "reduce"}
