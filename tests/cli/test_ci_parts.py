"""``graphpass ci`` on parts of a matrix, with baselines and expectations."""

import json
import os
import shutil
from pathlib import Path

import pytest
from support.commands import in_process
from support.models import export
from support.report_schemas import assert_valid_junit, assert_valid_report


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Four cells, of which `bad:p` fails until its model is mended."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("one", "two", "bad", "four"):
        shutil.copytree(export("llama", "ov-stateless"), folder / name)
        for file in (folder / name).iterdir():
            os.utime(file, (1, 1))
    (folder / "bad" / "openvino_model.xml").write_text("<net>")
    models = "".join(
        f"[[models]]\npath = '{name}'\npipelines = [{{name = 'p', pipeline = 'fuse-attention'}}]\n"
        for name in ("one", "two", "bad", "four")
    )
    reports = "[reports]\njson = 'report.json'\n"
    (folder / "graphpass.toml").write_text(f"[defaults]\nverify = false\npicture = false\n{models}{reports}")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def run(capfd, *options):
    done = in_process(capfd, "ci", "--format", "json", "--jobs", "2", *options)
    told = json.loads(done.out)
    assert_valid_report(told)
    return done.code, {one["cell"]["id"]: one["state"] for one in told["cells"]}, told


def mend(name="bad"):
    shutil.copy(export("llama", "ov-stateless") / "openvino_model.xml", name)
    os.utime(f"{name}/openvino_model.xml", (1, 1))


def test_a_part_does_not_overwrite_the_report_of_all(capfd, project):
    assert run(capfd, "--select", "one*")[:2] == (0, {"one:p": "converted"})
    assert not Path("report.json").exists()
    assert run(capfd)[0] == 1
    before = Path("report.json").read_bytes()
    done = in_process(capfd, "ci", "--select", "one*")
    assert "report.json is not written: only 1 of 4 cells run" in done.err
    assert run(capfd, "--select", "one*", "--report-json", "part.json")[0] == 0
    assert Path("report.json").read_bytes() == before
    assert len(json.loads(Path("part.json").read_text())["cells"]) == 1


def test_last_failed_runs_failed_cells_again(capfd, project):
    assert len(run(capfd, "--last-failed")[1]) == 4  # none ever ran
    assert run(capfd, "--last-failed")[:2] == (1, {"bad:p": "failed"})
    mend()
    assert run(capfd, "--select", "one*")[0] == 0  # says nothing of the others
    assert run(capfd, "--last-failed")[:2] == (0, {"bad:p": "converted"})
    assert run(capfd, "--last-failed")[:2] == (0, {})


def test_shards_are_merged(capfd, project):
    found = [run(capfd, "--shard", f"{number}/3") for number in (1, 2, 3)]
    assert [list(cells) for _, cells, _ in found] == [["one:p", "four:p"], ["two:p"], ["bad:p"]]
    assert [code for code, _, _ in found] == [0, 0, 1]
    parts = [f"report-{number}-of-3.json" for number in (1, 2, 3)]
    done = in_process(capfd, "ci", "merge-reports", *parts, "--report-json", "all.json", "--report-junit", "all.xml")
    assert done.code == 1
    assert "4 cells: 3 converted, 1 failed" in done.out
    merged = json.loads(Path("all.json").read_text())
    assert_valid_report(merged)
    assert [one["cell"]["id"] for one in merged["cells"]] == ["one:p", "two:p", "bad:p", "four:p"]
    assert merged["cells"][2] == found[2][2]["cells"][0]
    assert_valid_junit(Path("all.xml").read_text())
    mend()
    assert run(capfd, "--last-failed", "--report-json", "again.json")[0] == 0
    assert in_process(capfd, "ci", "merge-reports", "all.json", "again.json").code == 0
    assert run(capfd, "--shard", "5/5")[:2] == (0, {})


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "1/0", "a/b"])
def test_invalid_shards_are_refused(capfd, project, shard):
    done = in_process(capfd, "ci", "--shard", shard)
    assert (done.code, "expected a shard such as 1/4" in done.err) == (2, True)


@pytest.mark.parametrize(("text", "error"), [("{}", "GP239"), ("no JSON", "GP239"), (None, "GP114")])
def test_invalid_reports_are_refused(capfd, project, text, error):
    if text is not None:
        Path("part.json").write_text(text)
    done = in_process(capfd, "ci", "merge-reports", "part.json")
    assert done.err.startswith(f"error: {error}: ")
    assert "hint: name files that --report-json of this version wrote\n" in done.err
    assert ("part.json is not JSON: Expecting value" in done.err) == (text == "no JSON")


def test_a_dry_run_predicts_the_run(capfd, project):
    def planned():
        told = json.loads(in_process(capfd, "ci", "--dry-run", "--format", "json").out)
        assert_valid_report(told, "plan")
        return {one["cell"]["id"]: one["reason"] for one in told}

    first = planned()
    assert first["one:p"] == "there is no earlier result"
    assert first["bad:p"].startswith("GP106: ")
    run(capfd)
    os.utime("one/openvino_model.bin", (2, 2))  # newer, with the same content
    (Path("two") / "config.json").write_text("{}")
    expected = {"one:p": None, "two:p": "input beside config.json changed", "four:p": None}
    assert {name: reason for name, reason in planned().items() if name != "bad:p"} == expected
    assert "4 cells: 2 up to date, 2 to convert" in in_process(capfd, "ci", "--dry-run").out
    assert run(capfd)[1] == {"one:p": "up to date", "two:p": "converted", "bad:p": "failed", "four:p": "up to date"}


def test_unused_entries_of_a_baseline(capfd, project):
    assert run(capfd, "--update-baseline")[0] == 0
    mend()
    code, _, told = run(capfd, "--select", "one*", "--strict-baseline")
    assert (code, told["unused_baseline"]) == (0, [])  # the cell did not run
    code, _, told = run(capfd)
    assert (code, [one["cell"] for one in told["unused_baseline"]]) == (0, ["bad:p"])
    done = in_process(capfd, "ci")
    assert "warning: entries of the baseline no longer occur; --update-baseline removes them" in done.out
    assert run(capfd, "--strict-baseline")[0] == 1
    assert run(capfd, "--update-baseline")[2]["unused_baseline"] == []
    assert json.loads(Path("graphpass-baseline.json").read_text())["findings"] == []


def test_a_baseline_that_is_named_exists(capfd, project):
    done = in_process(capfd, "ci", "--baseline", "known.json")
    assert (done.code, done.out) == (3, "")
    assert done.err == "error: GP114: the baseline known.json does not exist\nhint: --update-baseline writes it\n"
    assert run(capfd, "--baseline", "known.json", "--update-baseline")[0] == 0
    assert run(capfd, "--baseline", "known.json")[0] == 0


def test_a_damaged_baseline_is_not_overwritten(capfd, project):
    Path("graphpass-baseline.json").write_text('{"baseline": 1, "find')
    done = in_process(capfd, "ci", "--update-baseline")
    assert (done.code, done.err.split(":")[1]) == (2, " GP235")
    assert Path("graphpass-baseline.json").read_text() == '{"baseline": 1, "find'


def test_expected_errors(capfd, project):
    text = Path("graphpass.toml").read_text()
    Path("graphpass.toml").write_text(text.replace("name = 'p'", "name = 'p', expect = 'GP106'"))
    code, _, told = run(capfd)
    verdicts = {one["cell"]["id"]: one["verdict"] for one in told["cells"]}
    assert (code, verdicts) == (1, {"one:p": "failed", "two:p": "failed", "bad:p": "known", "four:p": "failed"})
    problem = told["cells"][0]["problems"][0]
    assert (problem["rule"], problem["message"]) == ("GP605", "expected GP106, but the cell was converted")
    assert run(capfd, "--select", "bad*")[0] == 0
    Path("bad/openvino_model.xml").unlink()
    code, _, told = run(capfd, "--select", "bad*")
    assert (code, told["cells"][0]["problems"][0]["message"]) == (1, "expected GP106, but got GP103")


def test_certificates_of_results_hold(capfd, project):
    text = Path("graphpass.toml").read_text()
    Path("graphpass.toml").write_text(text.replace("verify = false\npicture = false", "steps = 1"))
    assert run(capfd, "--select", "one*")[0] == 0
    assert Path("converted/one/p/graphpass-picture.json").exists()
    done = in_process(capfd, "verify", "--certificate", "converted/one/p")
    assert (done.code, done.out.partition(":")[0]) == (0, "certificate holds"), done.err


def test_too_deeply_nested_files(capfd, project):
    """They ended in exit 70."""
    deep = "[" * 50000 + "]" * 50000
    Path("deep.json").write_text(f'{{"baseline": 1, "findings": {deep}}}')
    done = in_process(capfd, "ci", "--baseline", "deep.json")
    assert (done.code, done.err.splitlines()[0][:14]) == (2, "error: GP235: ")
    done = in_process(capfd, "ci", "merge-reports", "deep.json")
    assert (done.code, done.err.splitlines()[0][:14]) == (2, "error: GP239: ")
