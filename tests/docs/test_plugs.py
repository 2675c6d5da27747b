"""The GitHub action, the pre-commit hooks, the GitLab template and the example, run as their systems run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata, resources
from pathlib import Path

import jsonschema
import pytest
import yaml
from support.models import export, fixtures
from support.report_schemas import assert_valid_junit, assert_valid_report, assert_valid_sarif

from graphpass.matrix.config import load_config
from graphpass.matrix.plan import cells_of

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def official(name):
    """A schema of schemastore.org, as check-jsonschema has it."""
    folder = resources.files("check_jsonschema").joinpath("builtin_schemas/vendor")
    schema = json.loads(folder.joinpath(f"{name}.json").read_text("utf-8"))
    return jsonschema.validators.validator_for(schema)(schema)


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    shutil.copytree(export("llama", "ov-stateless"), folder / "models" / "llama")
    (folder / "graphpass.toml").write_text(
        "[defaults]\nverify = false\n[[models]]\npath = 'models/*'\ntargets = ['cpu', 'gpu']\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


def bash(script, **variables):
    """As GitHub's runner starts `shell: bash`."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | variables, timeout=600)


def action():
    return yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


def step(name, **inputs):
    """The script of a step of the action, and its variables."""
    told = action()
    values = {key: one["default"] for key, one in told["inputs"].items()} | inputs
    (found,) = [one for one in told["runs"]["steps"] if one["name"] == name]
    assert "${{" not in found["run"]  # what users write there would be run
    variables = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
        for key, text in found["env"].items()
    }
    return found["run"], variables


def test_the_action_is_well_formed():
    official("github-actions").validate(action())
    used = [one["uses"] for one in action()["runs"]["steps"] if "uses" in one]
    assert len(used) == 4
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name) for name in used)


def test_examples_name_this_version():
    version = metadata.version("graphpass")
    pages = [ROOT / "docs" / "ci.md", ROOT / "docs" / "gitlab-ci.yml", ROOT / "CONTRIBUTING.md"]
    for page in pages:
        named = re.findall(r"(?:graphpass@|rev: |tag -a )v(\d+\.\d+\.\d+)", page.read_text("utf-8"))
        assert set(named) == {version}, page.name
    assert f"\n## {version} (20" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("file", "watched"),
    [
        ("exports/llama/model.onnx", True),
        ("exports/llama/model.onnx_data", True),
        ("exports/llama/model.onnx_data_1", True),
        ("exports/llama/model.onnx.data", True),
        ("exports/llama/config.json", True),
        ("exports/llama/tokenizer.json", True),
        ("exports/llama/genai_config.json", True),
        ("openvino_model.xml", True),
        ("exports/llama/notes.md", False),
        ("package.json", False),
        ("converted/llama/cpu/openvino_model.xml", False),
        ("graphpass-reports/report.xml", False),
    ],
)
def test_the_hook_watches_models_and_not_its_own_output(file, watched):
    hook = next(one for one in hooks() if one["id"] == "graphpass-ci")
    found = re.search(hook["files"], file) is not None and re.search(hook["exclude"], file) is None
    assert found == watched


def hooks():
    return yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))


@pytest.mark.slow
def test_the_action_converts_and_reports(project):
    script, variables = step("Convert and report", select="*:gpu\n*:npu\n", arguments="--jobs\n1")
    done = bash(script, **variables, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY="summary.md")
    assert done.returncode == 0, done.stderr
    folder = Path("graphpass-reports")
    told = json.loads((folder / "report.json").read_text())
    assert_valid_report(told)
    assert [one["cell"]["id"] for one in told["cells"]] == ["llama:gpu"]
    assert_valid_sarif(json.loads((folder / "report.sarif").read_text()))
    assert_valid_junit((folder / "report.xml").read_text())
    assert Path("summary.md").read_text().startswith("### graphpass: 1 cell: 1 converted")
    (project / "models" / "llama" / "openvino_model.xml").write_text("<net>")
    script, variables = step("Convert and report", **{"fail-on": "warning\nchanged"})
    done = bash(script, **variables, GITHUB_ACTIONS="true")
    assert done.returncode == 1
    assert "::error file=models/llama/openvino_model.xml,title=GP106 llama%3Acpu::" in done.stderr


@pytest.mark.slow
def test_the_action_installs_graphpass(tmp_path):
    """Into an environment of its own, from a copy of the checkout, without what graphpass needs."""
    source = tmp_path / "action"
    for name in ("graphpass", "passes", "cli"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    venv.create(tmp_path / "venv", with_pip=True)
    script, variables = step("Install graphpass")
    path = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = bash(script, **variables, PIP_NO_DEPS="1", GITHUB_ACTION_PATH=str(source), PATH=path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "venv" / "bin" / "graphpass").is_file()
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages/graphpass")
    assert (site / "reports" / "schemas" / "config.json").is_file()
    assert (site / "matrix" / "reports" / "sarif.py").is_file()


@pytest.mark.slow
def test_the_hooks_run_in_pre_commit(project, tmp_path, monkeypatch):
    """With the language `system`, so that pre-commit does not install all that graphpass needs."""
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "pre-commit"))
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]

    def commit(folder):
        commands = [["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"], ["rev-parse", "HEAD"]]
        told = {"cwd": folder, "check": True, "capture_output": True, "text": True}
        return [subprocess.run([*git, *command], **told) for command in commands][-1].stdout.strip()

    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    revision = commit(hooks)
    used = [{"id": name, "language": "system"} for name in ("graphpass-config", "graphpass-ci")]
    config = {"repos": [{"repo": str(hooks), "rev": revision, "hooks": used}]}
    Path(".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    Path(".gitignore").write_text("converted/\n")
    commit(project)
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"\.(Passed|Failed|Skipped)", done.stdout) == ["Passed", "Passed"]
    assert sorted(path.name for path in Path("converted/llama").iterdir()) == ["cpu", "gpu"]
    text = Path("graphpass.toml").read_text()
    Path("graphpass.toml").write_text(text.replace("targets", "targts"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "graphpass.toml:5: models[0] has no key 'targts'; did you mean targets?" in done.stdout


def test_the_template_for_gitlab_is_well_formed():
    official("gitlab-ci").validate(yaml.safe_load((ROOT / "docs" / "gitlab-ci.yml").read_text("utf-8")))


@pytest.mark.slow
def test_the_template_for_gitlab_runs(project):
    job = yaml.safe_load((ROOT / "docs" / "gitlab-ci.yml").read_text("utf-8"))[".graphpass"]
    variables = {name: value.replace("$CI_PROJECT_DIR", str(project)) for name, value in job["variables"].items()}
    done = bash("\n".join(job["script"]), **variables, CI_PROJECT_DIR=str(project))
    assert done.returncode == 0, done.stderr
    reports = job["artifacts"]["reports"]["junit"].replace("$GRAPHPASS_REPORTS", variables["GRAPHPASS_REPORTS"])
    assert_valid_junit(Path(reports).read_text())
    done = bash("\n".join(job["script"]), **variables, CI_PROJECT_DIR=str(project))
    assert "2 cells: 2 up to date" in done.stdout


@pytest.mark.slow
def test_the_example_runs_twice(tmp_path, monkeypatch):
    """In a copy of the checkout as git has it."""
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(ROOT / "docs" / "example", tmp_path / "docs" / "example")
    (tmp_path / "build").mkdir()
    shutil.copytree(fixtures() / "llama", tmp_path / "build" / "fixtures" / "llama")
    recipe = (ROOT / "Makefile").read_text("utf-8")
    (commands,) = re.findall(r"^example:.*\n((?:\t.*\n)+)", recipe, re.MULTILINE)
    runs = [line.strip().replace("$(BIN)/", "") for line in commands.splitlines() if "graphpass" in line]
    assert len(runs) == 2
    monkeypatch.chdir(tmp_path)
    first, second = (bash(line) for line in runs)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    assert "5 cells: 5 converted, in " in first.stdout
    assert "5 cells: 5 up to date, in " in second.stdout
    assert float(second.stdout.split()[-2]) < 5
    folder = tmp_path / "demo-output" / "ci"
    told = json.loads((folder / "report.json").read_text())
    assert_valid_report(told)
    assert [one["cell"]["label"] for one in told["cells"]] == ["cpu", "gpu", "npu", "paged", "ort"]
    assert_valid_sarif(json.loads((folder / "report.sarif").read_text()))
    assert_valid_junit((folder / "report.xml").read_text())


def test_the_example_is_well_formed(monkeypatch):
    monkeypatch.chdir(ROOT)
    cells = cells_of(load_config(Path("docs/example/graphpass.toml")))
    assert {cell.source for cell in cells} == {"build/fixtures/llama/onnx"}
