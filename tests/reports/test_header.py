"""JSON of commands names its schema's version, what wrote it and when; errors are JSON, too."""

import json
from datetime import datetime, timezone
from importlib import resources
from importlib.metadata import version

import pytest
from support.commands import in_process
from support.models import export
from support.report_schemas import assert_valid_report

SCHEMAS = resources.files("graphpass.reports").joinpath("schemas")


def validated(text, schema):
    told = json.loads(text)
    assert_valid_report(told, schema)
    return told


@pytest.mark.parametrize(
    ("arguments", "schema"),
    [(("inspect", export("llama", "onnx")), "inspect"), (("explain", "GP203"), "explain"), (("targets",), "targets")],
    ids=lambda one: one if isinstance(one, str) else None,
)
def test_results_have_a_header(capfd, arguments, schema):
    told = validated(in_process(capfd, *arguments, "--format", "json").out, schema)
    assert list(told)[:3] == ["schema_version", "graphpass", "time"]
    assert (told["schema_version"], told["graphpass"]) == (1, version("graphpass"))
    assert datetime.fromisoformat(told["time"]) <= datetime.now(timezone.utc)


@pytest.mark.parametrize(
    ("arguments", "error_id", "code"),
    [
        (("inspect", "nowhere.onnx", "--format", "json"), "GP101", 3),
        (("explain", "GP999", "--format=json"), "GP216", 2),
        (("inspect", "--format", "json"), None, 2),
    ],
    ids=["read", "usage", "command line"],
)
def test_errors_are_json(capfd, arguments, error_id, code):
    done = in_process(capfd, *arguments)
    told = validated(done.out, "error")["error"]
    assert (done.code, told["exit_code"], told["id"]) == (code, code, error_id)
    assert told["message"] in done.err


def test_errors_of_text_output_are_not_json(capfd):
    assert in_process(capfd, "explain", "GP999").out == ""


def test_schemas_have_ids():
    for file in SCHEMAS.iterdir():
        schema = json.loads(file.read_text())
        assert schema["$id"] == f"urn:graphpass:schema:{file.name.removesuffix('.json')}:1"
