"""Files of reports by option or configuration, and annotations in GitHub Actions."""

import json

import pytest
from matrix.cells import CONVERTED, failed, run_of

from graphpass.cli.ci_reports import publish, report_files
from graphpass.cli.console import Console
from graphpass.errors import WriteError

NONE = {f"report_{name}": None for name in ("json", "junit", "sarif", "html", "markdown")}


@pytest.fixture(autouse=True)
def _outside_of_ci(monkeypatch):
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_options_come_before_the_configuration(tmp_path):
    given = NONE | {"report_json": tmp_path / "a.json"}
    files = report_files(given, {"json": tmp_path / "b.json", "html": tmp_path / "b.html"}.get)
    assert files == {"json": tmp_path / "a.json", "html": tmp_path / "b.html"}
    assert report_files(NONE, lambda name: None) == {}


def test_a_file_that_cannot_be_written_is_refused_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="GP501"):
        report_files(NONE | {"report_json": tmp_path / "file" / "a.json"}, lambda name: None)


def test_reports_are_written_and_printed(tmp_path, capsys):
    files = {"json": tmp_path / "a.json", "markdown": tmp_path / "a.md"}
    publish(Console(), run_of(CONVERTED), files, "json")
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(files["json"].read_text()) == printed
    assert [cell["state"] for cell in printed["cells"]] == ["converted"]
    assert "good" in files["markdown"].read_text()


@pytest.mark.parametrize(("actions", "annotated"), [("true", True), ("false", False)])
def test_failures_are_annotated_in_github_actions(tmp_path, monkeypatch, capsys, actions, annotated):
    monkeypatch.setenv("GITHUB_ACTIONS", actions)
    publish(Console(), run_of(failed()), {}, "text")
    assert ("::error" in capsys.readouterr().err) == annotated


def test_the_summary_of_a_job_is_appended_to(tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    publish(Console(), run_of(CONVERTED), {}, "text")
    assert summary.read_text().startswith("before\n")
    assert "good" in summary.read_text()
