"""graphpass ci merge-reports merges the reports of shards."""

import json

import pytest
from matrix.cells import CONVERTED, OTHERS, failed, run_of
from support.commands import in_process

from graphpass.matrix.reports.plain import as_json


def report(folder, name, *results):
    (folder / name).write_text(json.dumps(as_json(run_of(*results))))
    return folder / name


def test_reports_of_the_whole_matrix_are_written(capfd, tmp_path):
    parts = [report(tmp_path, "1.json", OTHERS[0]), report(tmp_path, "2.json", OTHERS[1])]
    done = in_process(
        capfd,
        "ci",
        "merge-reports",
        *parts,
        "--report-json",
        tmp_path / "all.json",
        "--report-markdown",
        tmp_path / "all.md",
    )
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1].startswith("2 cells: ")
    merged = json.loads((tmp_path / "all.json").read_text())
    assert [cell["cell"]["model"] for cell in merged["cells"]] == ["good", "warned"]
    assert (tmp_path / "all.md").read_text()


def test_the_exit_code_is_that_of_a_run_of_all_cells(capfd, tmp_path):
    parts = [report(tmp_path, "1.json", CONVERTED), report(tmp_path, "2.json", failed())]
    assert in_process(capfd, "ci", "merge-reports", *parts).code == 1
    done = in_process(capfd, "ci", "merge-reports", *parts, "--format", "json")
    assert json.loads(done.out)["exit_code"] == 1


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["none.json"], 3)])
def test_missing_reports_are_refused(capfd, tmp_path, monkeypatch, arguments, code):
    monkeypatch.chdir(tmp_path)
    assert in_process(capfd, "ci", "merge-reports", *arguments).code == code
