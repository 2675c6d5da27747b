"""Files with reports on a run: each format, and text that is appended."""

import json

import pytest
from matrix.cells import OTHERS, ROOT, failed, run_of

from graphpass.errors import WriteError
from graphpass.matrix.reports.files import REPORTS, append, dumped, write_reports


def test_each_format_has_a_file(tmp_path):
    files = {name: tmp_path / f"report.{name}" for name in REPORTS}
    write_reports(run_of(failed(), *OTHERS), files, ROOT)
    texts = {name: file.read_text() for name, file in files.items()}
    assert len(json.loads(texts["json"])["cells"]) == 4
    assert json.loads(texts["sarif"])["version"] == "2.1.0"
    assert texts["junit"].startswith("<?xml")
    assert texts["html"].lower().startswith("<!doctype html>")
    assert "node0" in texts["markdown"]


def test_text_is_appended_to_a_file(tmp_path):
    append(tmp_path / "a", "one\n")
    append(tmp_path / "a", "two\udcff")
    assert (tmp_path / "a").read_text() == "one\ntwo\\udcff"
    with pytest.raises(WriteError, match="GP501"):
        append(tmp_path / "none" / "a", "x")


def test_json_has_no_numbers_that_parsers_refuse():
    assert dumped({"n": 1}) == '{\n  "n": 1\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumped(float("nan"))
