"""Configurations with a selection of their cells: reports, executors and the baseline."""

from pathlib import Path

import pytest
from matrix.cells import failed, run_of

from graphpass.errors import UsageError
from graphpass.matrix.baseline import Baseline
from graphpass.matrix.project import Project
from graphpass.matrix.selection import Shard

TEXT = """output = "out/{model}/{target}"
memory = "2 GiB"
jobs = 3
reports = {json = "report.json"}
baseline = "known.json"

[[models]]
path = "exports/*/onnx"
targets = ["cpu", "gpu"]
"""


@pytest.fixture
def opened(project, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(project / "cache"))
    Path("graphpass.toml").write_text(TEXT)
    return Project.open


def test_cells_are_selected_by_pattern_and_shard(opened):
    assert [cell.id for cell in opened(None).cells] == ["llama:cpu", "llama:gpu", "qwen3:cpu", "qwen3:gpu"]
    project = opened(None, ["*:cpu"], shard=Shard(2, 2))
    assert [cell.id for cell in project.cells] == ["qwen3:cpu"]
    assert len(project.every) == 4
    with pytest.raises(UsageError, match="GP234"):
        opened(None, ["nothing"])


def test_reports_are_written_for_all_cells_or_a_shard(opened):
    assert opened(None).report_file("json") == Path("report.json")
    assert opened(None).report_file("html") is None
    assert opened(None, ["*:cpu"]).report_file("json") is None
    assert opened(None, shard=Shard(1, 2)).report_file("json") == Path("report-1-of-2.json")


@pytest.mark.parametrize(
    ("jobs", "memory", "expected"), [(None, None, (3, 2 << 30)), (1, "500 MB", (1, 500_000_000)), (2, 7, (2, 7))]
)
def test_arguments_come_before_the_configuration(opened, jobs, memory, expected):
    processes = opened(None).processes(jobs, memory, 0)
    assert (processes.jobs, processes.memory) == expected


def test_a_memory_that_is_no_size_is_refused(opened):
    with pytest.raises(UsageError, match="GP231: --memory much"):
        opened(None).processes(None, "much", 0)


def test_the_baseline_is_written_unless_the_run_was_interrupted(opened, project):
    opened_project = opened(None)
    baseline = opened_project.baseline()
    run = run_of(failed(1, model="llama", label="cpu"))
    opened_project.concluded(run_of(failed(1, model="llama", label="cpu"), interrupted=True), baseline, update=True)
    assert not (project / "known.json").exists()
    assert [cell.id for cell in opened(None, last_failed=True).cells] == ["llama:cpu"]
    opened_project.concluded(run, baseline, update=True)
    assert Baseline.read(project / "known.json").fingerprints
    assert not opened(None, last_failed=True).cells


def test_unused_entries_of_the_baseline_are_reported(opened):
    opened_project = opened(None)
    opened_project.concluded(run_of(failed(1, model="llama", label="cpu")), opened_project.baseline(), update=True)
    run = opened_project.concluded(run_of(), opened_project.baseline(), strict=True)
    assert run.strict_baseline
    assert opened_project.baseline(Path("other.json")).fingerprints == frozenset()
