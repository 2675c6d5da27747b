"""Runs of shards merged into one."""

import json

import pytest
from matrix.cells import CONVERTED, OTHERS, cell, failed, run_of

from graphpass.errors import ReadError, UsageError
from graphpass.matrix.cells import CellResult
from graphpass.matrix.merging import merged
from graphpass.matrix.reports.plain import as_json


def report(folder, name, run):
    file = folder / name
    file.write_text(json.dumps(as_json(run)))
    return file


def test_shards_are_in_the_order_of_the_configuration(tmp_path):
    first, second, third = OTHERS
    files = [report(tmp_path, "1.json", run_of(first, third)), report(tmp_path, "2.json", run_of(second))]
    run = merged(files)
    assert [result.cell for result in run.results] == [first.cell, second.cell, third.cell]
    assert run.results[1].problems == second.problems
    assert (run.exit_code, run.seconds) == (0, 1.25)


def test_the_last_result_of_a_cell_counts(tmp_path):
    bad = failed()
    files = [
        report(tmp_path, "1.json", run_of(bad)),
        report(tmp_path, "2.json", run_of(CellResult(cell(), "converted"))),
    ]
    assert [result.state for result in merged(files).results] == ["converted"]
    assert [result.state for result in merged(files[::-1]).results] == ["failed"]


def test_known_findings_interruptions_and_levels_are_kept(tmp_path):
    known = failed()
    files = [
        report(tmp_path, "1.json", run_of(known, baseline=known.fingerprints)),
        report(tmp_path, "2.json", run_of(CONVERTED, fail_on=["changed"], interrupted=True)),
    ]
    run = merged(files)
    assert run.verdict(run.results[0]) == "known"
    assert run.exit_code == 130


@pytest.mark.parametrize(("text", "error_id"), [("{", "GP239"), ("{}", "GP239"), (None, "GP114")])
def test_other_files_are_refused(tmp_path, text, error_id):
    file = tmp_path / "report.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises((ReadError, UsageError)) as raised:
        merged([file])
    assert raised.value.id == error_id
