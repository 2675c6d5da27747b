"""``graphpass ci``, from the configuration to the reports."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.commands import in_process
from support.folders import folder_contents
from support.models import export
from support.plugins import plugin_paths
from support.report_schemas import assert_valid_junit, assert_valid_report, assert_valid_sarif

from graphpass.artifacts.manifest import damage
from graphpass.storage.locking import sole_worker


@pytest.fixture(autouse=True)
def _nobody_else_s_settings(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def model(name, variant, kind, checks="verify = false", path=None):
    source = path or export(name, variant)
    return f"[[models]]\nname = '{name}'\npath = '{source}'\n{kind}\n{checks}\n"


def configure(*models):
    Path("graphpass.toml").write_text("\n".join(models))


LLAMA_FOLDER = export("llama", "ov-stateless")


def run(capfd, *options):
    done = in_process(capfd, "ci", "--format", "json", *options)
    told = json.loads(done.out)
    assert_valid_report(told)
    return done.code, {one["cell"]["id"]: one for one in told["cells"]}, done.err


LLAMA = model("llama", "ov-stateless", "targets = ['cpu']")

REPORTS = ["--report-sarif", "r/r.sarif", "--report-junit", "r/r.xml", "--report-html", "r.html", "--report-json", "j"]


def test_each_cell_fails_alone(capfd, project, tmp_path, monkeypatch):
    """A truncated model, an unsupported one, one that breaks its contract, and one that verification refuses."""
    for path in plugin_paths("sample_plugin", tmp_path / "plugin"):
        monkeypatch.syspath_prepend(path)
    cut = shutil.copytree(export("llama", "onnx"), project / "cut")
    os.truncate(cut / "model.onnx", 5_000)
    wrong = "pipelines = [{name = 'wrong', pipeline = 'sample-scale{factor=3.0}'}]"
    configure(
        model("cut", "onnx", "targets = ['cpu']", path="cut"),
        model("plain", "onnx-nocache", "targets = ['cpu']", path=export("llama", "onnx-nocache")),
        model("gemma2", "onnx", "targets = ['cpu']"),
        model("scaled", "onnx", wrong, "verify = true\nsteps = 1", path=export("llama", "ov-stateless")),
        LLAMA,
    )
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    code, cells, errors = run(capfd, "--jobs", "2", *REPORTS)
    assert code == 1
    rules = {name: (one["state"], one["exit_code"], one["problems"][0]["rule"]) for name, one in cells.items()}
    assert rules == {
        "cut:cpu": ("failed", 3, "GP104"),
        "plain:cpu": ("failed", 4, "GP302"),
        "gemma2:cpu": ("failed", 4, "GP350"),
        "scaled:wrong": ("failed", 1, "GP601"),
        "llama:cpu": ("converted", 0, "tokenizer"),
    }
    assert sorted(path.name for path in Path("converted").glob("*/*")) == ["cpu"]
    sarif = json.loads(Path("r/r.sarif").read_text())
    assert_valid_sarif(sarif)
    found = {one["ruleId"]: one for one in reversed(sarif["runs"][0]["results"])}
    places = {rule: one["locations"][0] for rule, one in found.items()}
    assert places["GP104"]["physicalLocation"]["artifactLocation"]["uri"] == "cut/model.onnx"
    assert places["GP350"]["logicalLocations"][1]["name"] == "/model/layers.0/self_attn/Softmax"
    assert places["GP601"]["logicalLocations"][1]["name"] == "logits"
    text = Path("r/r.xml").read_text()
    assert_valid_junit(text)
    kinds = {case.get("classname"): [one.tag for one in case] for case in ET.fromstring(text).iter("testcase")}
    failures = {name: ["failure"] for name in ("plain", "gemma2", "scaled")}
    assert kinds == {"cut": ["error"], **failures, "llama": ["system-out"]}
    for line in (
        "::error file=cut/model.onnx,title=GP104 cut%3Acpu::",
        f"::error file={export('gemma2', 'onnx')}/model.onnx,title=GP350 gemma2%3Acpu::/model/layers.0/self_attn/",
        "title=GP601 scaled%3Awrong::the result does not compute the same as the input%0A",
        "title=GP302 plain%3Acpu::",
    ):
        assert line in errors
    assert "| `cut` | ❌ failed |" in Path("summary.md").read_text()
    assert Path("r.html").read_text().count("<details id=") == 5
    assert_valid_report(json.loads(Path("j").read_text()))


@pytest.mark.slow
def test_up_to_date_results_are_unchanged(capfd, project):
    shutil.copytree(export("llama", "ov-stateless"), "in")
    for file in (path := Path("in")).iterdir():
        os.utime(file, (1, 1))
    configure(model("llama", "ov-stateless", "targets = ['cpu']", path=path))
    assert run(capfd)[1]["llama:cpu"]["state"] == "converted"
    before = folder_contents(Path("converted"))
    done = in_process(capfd, "ci")
    assert (done.code, done.err) == (0, "[1/1] llama:cpu up to date\n")
    assert done.out.startswith("llama:cpu  up to date  converted/llama/cpu\n\n1 cell: 1 up to date, in ")
    assert folder_contents(Path("converted")) == before
    xml = path / "openvino_model.xml"
    xml.write_text(xml.read_text().replace('name="Model', 'name="Other'))
    assert run(capfd)[1]["llama:cpu"]["state"] == "converted"


@pytest.mark.slow
def test_fail_on_changed_keeps_the_published_result(capfd, project):
    configure(LLAMA)
    assert run(capfd)[0] == 0
    before = folder_contents(Path("converted"))
    configure(model("llama", "ov-stateless", "pipelines = [{name = 'cpu', pipeline = 'fuse-attention'}]"))
    for _ in range(2):
        code, cells, _ = run(capfd, "--fail-on", "changed")
        assert (code, cells["llama:cpu"]["problems"][0]["rule"]) == (1, "GP603")
        assert (cells["llama:cpu"]["changed"], "-4 ReadValue" in cells["llama:cpu"]["changes"]) == (True, True)
        assert folder_contents(Path("converted")) == before
    assert run(capfd)[0] == 0
    assert run(capfd, "--fail-on", "changed")[0] == 0


def test_a_dry_run_prints_the_plan(capfd, project):
    configure(LLAMA, model("gemma2", "onnx", "targets = ['cpu', 'npu']"))
    done = in_process(capfd, "ci", "--dry-run", "--select", "gemma2:*", "--select", "*:cpu")
    assert (done.code, [line.split()[:3] for line in done.out.splitlines()[:3]]) == (
        0,
        [["llama:cpu", "to", "convert"], ["gemma2:cpu", "to", "convert"], ["gemma2:npu", "to", "convert"]],
    )
    told = json.loads(in_process(capfd, "ci", "--dry-run", "--format", "json").out)
    assert_valid_report(told, "plan")
    assert [(one["cell"]["id"], one["state"]) for one in told] == [
        ("llama:cpu", "to convert"),
        ("gemma2:cpu", "to convert"),
        ("gemma2:npu", "to convert"),
    ]
    assert not Path("converted").exists()


@pytest.mark.slow
def test_findings_of_a_baseline_are_accepted(capfd, project):
    configure(model("gemma2", "onnx", "targets = ['cpu']"))
    assert run(capfd, "--update-baseline")[0] == 0
    told = json.loads(Path("graphpass-baseline.json").read_text())
    assert {finding["rule"] for finding in told["findings"]} == {"GP350"}
    code, cells, _ = run(capfd)
    assert (code, cells["gemma2:cpu"]["verdict"], cells["gemma2:cpu"]["state"]) == (0, "known", "failed")
    configure(model("gemma2", "onnx", "targets = ['cpu']", "allow-unfused = true\nverify = false"))
    Path("graphpass-baseline.json").unlink()
    assert run(capfd)[0] == 0
    assert run(capfd, "--fail-on", "warning")[0] == 1
    Path("graphpass-baseline.json").write_text("{}")
    assert in_process(capfd, "ci").err.startswith("error: GP235: ")


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    paths = plugin_paths("hostile_plugin", tmp_path / "hostile")
    for path in paths:
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))


def pipeline(name, text, more=""):
    return model(
        name, "", f"pipelines = [{{name = 'p', pipeline = '{text}'}}]", f"verify = false\n{more}", LLAMA_FOLDER
    )


@pytest.mark.slow
@pytest.mark.usefixtures("hostile")
def test_a_crash_fails_its_cell_alone(capfd, project):
    configure(
        pipeline("dies", "test-die"),
        pipeline("recovers", "test-dieonce"),
        pipeline("exits", "test-exit"),
        pipeline("hangs", "test-hang", "timeout = 3"),
        pipeline("well", "fuse-attention"),
    )
    code, cells, _ = run(capfd, "--jobs", "2")
    assert code == 1
    found = {name: (one["exit_code"], one["problems"][:1]) for name, one in cells.items()}
    rules = {name: (code, [one["rule"] for one in problems]) for name, (code, problems) in found.items()}
    expected = {
        "dies:p": (5, ["GP406"]),
        "recovers:p": (0, []),
        "exits:p": (5, ["GP406"]),
        "hangs:p": (5, ["GP407"]),
        "well:p": (0, []),
    }
    assert rules == expected
    assert found["dies:p"][1][0]["message"] == "the process ended by signal 9"
    assert found["exits:p"][1][0]["message"] == "the process ended with 7: terminate called"
    assert sorted(path.parent.name for path in Path("converted").glob("*/p")) == ["recovers", "well"]
    assert not [path for path in Path().rglob(".*") if "graphpass" in path.name]


def start(*options):
    command = [sys.executable, "-m", "graphpass.cli", "ci", "--jobs", "1", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def ended_cells(process, count):
    """Wait until some cells have ended, and return their lines."""
    lines = []
    for line in process.stderr:
        if line.startswith("["):
            lines.append(line)
        if len(lines) == count:
            return lines
    raise AssertionError(process.stdout.read())


@pytest.mark.slow
@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("ending", ["kill", "kill all", "interrupt", "terminate"])
def test_a_terminated_run_resumes(capfd, project, ending):
    """Two cells have ended and the third hangs while it holds its staged result."""
    names = ["a", "b"]
    configure(
        *(pipeline(name, "fuse-attention") for name in names), pipeline("c", "test-hang{pipe=pipe},fuse-attention")
    )
    os.mkfifo("pipe")
    process = start("--report-json", "report.json")
    try:
        assert [line.split()[1:3] for line in ended_cells(process, 2)] == [["a:p", "converted"], ["b:p", "converted"]]
        assert Path("pipe").read_text().isdecimal()
        before = folder_contents(Path("converted"))
        {
            "kill": process.kill,
            "kill all": lambda: os.killpg(process.pid, signal.SIGKILL),
            "interrupt": lambda: os.killpg(process.pid, signal.SIGINT),
            "terminate": process.terminate,
        }[ending]()
        process.communicate(timeout=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    reports = ending in {"interrupt", "terminate"}
    assert process.returncode == (130 if reports else -9)
    if reports:
        told = json.loads(Path("report.json").read_text())
        assert_valid_report(told)
        assert [one["state"] for one in told["cells"]] == ["converted", "converted", "cancelled"]
    # The third cell's process ends with its parent, and so does its lock.
    with sole_worker(Path("converted/c/p")):
        pass
    assert all(damage(Path(f"converted/{name}/p/graphpass.json")) is None for name in names)
    assert not Path("converted/c/p").exists()
    os.remove("pipe")
    code, cells, _ = run(capfd)
    assert (code, [one["state"] for one in cells.values()]) == (0, ["up to date", "up to date", "converted"])
    assert {name: one for name, one in folder_contents(Path("converted")).items() if not name.startswith("c/")} == {
        name: one for name, one in before.items() if not name.startswith("c/")
    }
    assert not [path for path in Path().rglob(".*") if "graphpass" in path.name]


@pytest.mark.slow
def test_two_runs_at_once_write_no_cell_twice(project):
    configure(*(pipeline(name, "fuse-attention") for name in "abcd"))
    processes = [start("--format", "json") for _ in range(2)]
    told = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    for one, other in zip(told[0]["cells"], told[1]["cells"], strict=True):
        assert sorted([one["state"], other["state"]]) == ["converted", "up to date"]
        assert damage(Path(one["cell"]["output"]) / "graphpass.json") is None


@pytest.mark.slow
@pytest.mark.usefixtures("hostile")
def test_a_bug_is_reported_apart_from_failures(capfd, project):
    configure(model("bad", "", "targets = ['test-broken']", path=LLAMA_FOLDER), LLAMA)
    code, cells, _ = run(capfd)
    assert (code, cells["llama:cpu"]["state"], cells["bad:test-broken"]["exit_code"]) == (70, "converted", 70)
    (problem,) = cells["bad:test-broken"]["problems"]
    assert (problem["rule"], problem["message"]) == ("GP408", "internal error: ZeroDivisionError: by zero")


def test_missing_configuration_keys_are_refused(capfd, project):
    done = in_process(capfd, "ci")
    assert (done.code, done.err.startswith("error: GP232: no configuration in ")) == (2, True)
    configure(LLAMA.replace("path", "pth"))
    done = in_process(capfd, "ci")
    assert done.code == 2
    assert "graphpass.toml:3: models[0] has no key 'pth'; did you mean path?" in done.err
    configure(LLAMA)
    done = in_process(capfd, "ci", "--memory", "much")
    assert (done.code, "--memory much" in done.err) == (2, True)
