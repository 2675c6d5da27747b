"""Reports and pictures beside the result of a cell, which belong to one manifest."""

import json
from dataclasses import replace

import pytest
from matrix.cells import cell, failed

from graphpass.artifacts.manifest import MANIFEST_FILE, PICTURE_FILE, RESULT_FILE
from graphpass.matrix.cell_memory import earlier_result, pictures_of, result_of, write_pictures, write_result


@pytest.fixture
def written(tmp_path):
    (tmp_path / MANIFEST_FILE).write_text('{"n": 1}')
    mine = replace(cell(), output=str(tmp_path))
    write_result(tmp_path, replace(failed(2), cell=mine, memory=7, outcome={"target": "cpu"}))
    write_pictures(tmp_path, [{"name": "a"}])
    return tmp_path, mine


def test_the_report_is_read_again_as_up_to_date(written):
    _, mine = written
    found = earlier_result(mine)
    assert (found.state, len(found.problems), found.memory) == ("up to date", 2, 7)
    assert found.problems == failed(2).problems
    assert pictures_of(mine) == [{"name": "a"}]


def test_a_later_manifest_makes_them_void(written):
    folder, mine = written
    (folder / MANIFEST_FILE).write_text('{"n": 2}')
    found = earlier_result(mine)
    assert (found.state, found.problems, found.file) == ("up to date", (), mine.source)
    assert pictures_of(mine) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"manifest": 1}'])
def test_damaged_files_are_ignored(written, content):
    folder, mine = written
    for name in (RESULT_FILE, PICTURE_FILE):
        (folder / name).write_bytes(content)
    assert earlier_result(mine).problems == ()
    assert pictures_of(mine) == []


def test_a_report_without_a_field_is_ignored(written):
    folder, mine = written
    content = json.loads((folder / RESULT_FILE).read_text())
    del content["problems"][0]["message"]
    assert result_of(mine, json.dumps(content).encode(), (folder / MANIFEST_FILE).read_bytes()).problems == ()
