"""SARIF: rules, results and locations, as code scanning reads them."""

from dataclasses import replace

import pytest
from matrix.cells import OTHERS, ROOT, WARNED, failed, run_of
from support.report_schemas import assert_valid_sarif

from graphpass.error_catalog import CATALOG
from graphpass.matrix.cells import Problem
from graphpass.matrix.reports.sarif import as_sarif


def sarif_of(run):
    told = as_sarif(run, ROOT)
    assert_valid_sarif(told)
    (only,) = told["runs"]
    as_code_scanning_reads(only)
    return only


def as_code_scanning_reads(told):
    """The rules of "SARIF support for code scanning" in GitHub's documentation."""
    rules = told["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules) <= 25_000
    for rule in rules:
        assert rule["name"] != rule["id"]
        assert 0 < len(rule["shortDescription"]["text"]) <= len(rule["fullDescription"]["text"]) <= 1024
        assert rule["help"]["text"]
        assert rule["helpUri"].startswith("https://")
        assert rule["defaultConfiguration"]["level"] in {"error", "warning"}
        assert 0 < len(rule["properties"]["tags"]) <= 20
        assert rule["properties"]["problem.severity"] in {"error", "warning"}
    assert len(told["results"]) <= 25_000
    for result in told["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert not place["artifactLocation"]["uri"].startswith(("/", "file:"))
        assert place["region"]["startLine"] == 1
    alerts = [(one["ruleId"], one["partialFingerprints"]["primaryLocationLineHash"]) for one in told["results"]]
    assert len(set(alerts)) == len(alerts)
    assert "automationDetails" not in told  # upload-sarif ignores its category if it is set


def test_sarif_holds_findings_with_rules():
    told = sarif_of(run_of(failed(2), *OTHERS))
    assert [result["level"] for result in told["results"]] == ["error", "error", "warning"]  # without notes
    first = told["results"][0]
    assert first["ruleId"] == "GP350"
    rule = told["tool"]["driver"]["rules"][first["ruleIndex"]]
    assert rule["helpUri"].endswith("/docs/errors.md#gp350")
    assert rule["name"] == "UnsupportedGP350"
    assert rule["properties"]["tags"] == ["graphpass", "unsupported"]
    (location,) = first["locations"]
    assert location["logicalLocations"] == [
        {"name": "m:cpu", "fullyQualifiedName": "m:cpu", "kind": "module"},
        {"name": "node0", "fullyQualifiedName": "m:cpu::node0", "kind": "node"},
    ]
    warned = told["results"][2]
    place = warned["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "warned/warned.onnx", "uriBaseId": "%SRCROOT%"}
    assert warned["properties"]["file"] == "/elsewhere/warned.onnx"
    assert told["invocations"][0]["exitCode"] == 1


def test_sarif_separates_one_finding_of_several_targets():
    targets = [failed(2, label=label) for label in ("cpu", "gpu", "npu")]
    before, after = (sarif_of(run_of(*targets))["results"] for _ in range(2))
    assert [one["partialFingerprints"] for one in before] == [one["partialFingerprints"] for one in after]


@pytest.mark.parametrize("rule", [*CATALOG, "verify", "XY1"])
def test_sarif_describes_each_rule(rule):
    problem = Problem(rule, "warning", "something")
    sarif_of(run_of(replace(WARNED, problems=(problem,))))


def test_sarif_names_files_relative_to_the_sources(monkeypatch):
    result = replace(failed(), file="/src/a b/model.onnx")
    place = sarif_of(run_of(result))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "a%20b/model.onnx", "uriBaseId": "%SRCROOT%"}


@pytest.mark.slow
def test_sarif_holds_no_more_than_github_shows():
    told = sarif_of(run_of(WARNED, failed(5_100)))
    assert len(told["results"]) == 5_000
    assert {result["level"] for result in told["results"]} == {"error"}
    (notice,) = told["invocations"][0]["toolExecutionNotifications"]
    assert notice["message"]["text"].startswith("101 findings of the lowest levels are omitted")
