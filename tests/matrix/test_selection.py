"""Cells chosen by patterns, shards and last failures."""

from pathlib import Path

import pytest
from matrix.cells import CONVERTED, cell, failed, run_of

from graphpass.errors import UsageError
from graphpass.matrix.selection import Shard, last_failed, note_failed, selected

LABELS = ("cpu", "gpu{cache=reorder}", "npu-long")
CELLS = [cell(model, label) for model in ("llama", "qwen3") for label in LABELS]


def test_cells_are_selected_by_pattern():
    assert [cell.id for cell in selected(CELLS, ["*:npu*", "llama:gpu{cache=reorder}"])] == [
        "llama:gpu{cache=reorder}",
        "llama:npu-long",
        "qwen3:npu-long",
    ]
    with pytest.raises(UsageError, match="no cell matches lama") as raised:
        selected(CELLS, ["lama:*"])
    assert raised.value.id == "GP234"


def test_a_name_that_is_also_a_pattern_selects_its_cell():
    """fnmatch would read ``[int8]`` as one letter."""
    named = cell("llama[int8]")
    assert selected([named, cell("llama")], ["llama[int8]:cpu"]) == (named,)


def test_shards_are_disjoint_and_complete():
    parts = [Shard.parse(f"{number}/4").of(CELLS) for number in range(1, 5)]
    assert [len(part) for part in parts] == [2, 2, 1, 1]
    assert {cell.id for part in parts for cell in part} == {cell.id for cell in CELLS}
    assert Shard(2, 4).file(Path("out/report.json")) == Path("out/report-2-of-4.json")


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "1", "a/b", "1/4 "])
def test_other_shards_are_refused(text):
    with pytest.raises(ValueError, match="expected a shard such as 1/4"):
        Shard.parse(text)


@pytest.mark.usefixtures("cache_folder")
def test_the_last_failures_include_those_of_cells_that_did_not_run(tmp_path):
    config, bad, late = tmp_path / "graphpass.toml", failed(), failed(model="late")
    cells = (bad.cell, late.cell, CONVERTED.cell)
    assert last_failed(cells, config) == cells
    note_failed(run_of(bad, late, CONVERTED), config)
    assert last_failed(cells, config) == (bad.cell, late.cell)
    note_failed(run_of(failed(model="late", exit_code=3), CONVERTED), config)
    assert last_failed(cells, config) == (bad.cell, late.cell)
    note_failed(run_of(late, CONVERTED, baseline=late.fingerprints), config)
    assert last_failed(cells, config) == (bad.cell,)
