"""Cells on a Dask cluster, between addresses of an S3-compatible server, though a worker dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from matrix.cells import Positions
from support.cluster import cluster, s3_server
from support.commands import in_process
from support.models import export
from support.plugins import plugin_paths

from graphpass.artifacts.manifest import damage
from graphpass.errors import UsageError
from graphpass.matrix.cells import Cell, Settings
from graphpass.matrix.fleet import Fleet
from graphpass.matrix.progress import Progress


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    paths = plugin_paths("hostile_plugin", tmp_path / "plugin")
    for path in paths:
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A bucket that keeps all versions of its files."""
    boto3 = pytest.importorskip("boto3")
    with s3_server(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"])
        client.create_bucket(Bucket="models")
        client.put_bucket_versioning(Bucket="models", VersioningConfiguration={"Status": "Enabled"})
        yield client


def upload(bucket, folder, prefix):
    for file in folder.iterdir():
        if file.is_file():
            bucket.upload_file(str(file), "models", f"{prefix}/{file.name}")


def versions(bucket, prefix):
    """Number of versions of each file, and the files that were deleted."""
    found, deleted = {}, set()
    for page in bucket.get_paginator("list_object_versions").paginate(Bucket="models", Prefix=prefix):
        for one in page.get("Versions", ()):
            found[one["Key"]] = found.get(one["Key"], 0) + 1
        deleted |= {one["Key"] for one in page.get("DeleteMarkers", ())}
    return found, deleted


def run_ci(folder, *arguments):
    command = [sys.executable, "-m", "graphpass.cli", "ci", str(folder), "--format", "json", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_each_result_is_written_once_though_a_worker_dies(plugin, bucket, tmp_path):
    upload(bucket, export("llama", "ov-stateless"), "in/llama")
    upload(bucket, export("qwen3", "ov-stateless"), "in/qwen3")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    cells = 3
    waiting = f"test-hang{{pipe={pipe}}}"
    pipelines = [{"name": "waits", "pipeline": f"{waiting},make-stateful"}]
    pipelines += [{"name": f"plain{number}", "pipeline": "make-stateful"} for number in range(cells)]
    tables = [f'{{ name = "{one["name"]}", pipeline = "{one["pipeline"]}" }}' for one in pipelines]
    config = [
        'output = "s3://models/out/{model}/{target}"',
        "[defaults]",
        "verify = false",
        "[[models]]",
        'path = "s3://models/in/*"',
        f"pipelines = [{', '.join(tables)}]",
    ]
    (tmp_path / "graphpass.toml").write_text("\n".join(config))
    with cluster(tmp_path, 2) as found:
        arguments = ("--executor", "dask", "--scheduler", found.scheduler)
        # One cell alone waits at the pipe.
        selected = ("--select", "llama:*", "--select", "qwen3:plain*")
        run = run_ci(tmp_path, *selected, *arguments)
        worker = int(pipe.read_text())
        pipe.unlink()
        assert worker in {process.pid for process in found.workers}
        os.kill(worker, signal.SIGKILL)
        out, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        told = json.loads(out)
        states = {result["cell"]["id"]: result["state"] for result in told["cells"]}
        assert len(states) == 2 * cells + 1
        # A cell whose report died with its worker is found to be up to date.
        assert set(states.values()) <= {"converted", "up to date"}
        assert states["llama:waits"] == "converted"

        second = run_ci(tmp_path, *selected, *arguments)
        out, err = second.communicate(timeout=300)
        assert {result["state"] for result in json.loads(out)["cells"]} == {"up to date"}, err
    counts, deleted = versions(bucket, "out/")
    results = {key: count for key, count in counts.items() if "/.graphpass-" not in key}
    assert set(results.values()) == {1}
    assert sum(key.endswith("/graphpass.json") for key in results) == 2 * cells + 1
    # Leases and uploads are gone, those of the dead worker too.
    assert {key for key in counts if "/.graphpass-" in key} == deleted
    for name in ("llama/waits", "qwen3/plain0"):
        (tmp_path / name).mkdir(parents=True)
        for key in results:
            if key.startswith(f"out/{name}/"):
                bucket.download_file("models", key, str(tmp_path / name / Path(key).name))
        assert damage(tmp_path / name / "graphpass.json") is None


@pytest.mark.slow
def test_a_timeout_fails_its_cell_alone(plugin, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    source = shutil.copytree(export("llama", "ov-stateless"), tmp_path / "in")
    out = str(tmp_path / "out")
    pipeline = f"test-hang{{pipe={pipe}}}"
    slow = Cell("m", "slow", str(source), out, None, pipeline, out, Settings(verify=False, timeout=2))
    positions = Positions()
    with cluster(tmp_path, 1) as found:
        (result,) = Fleet(found.scheduler).run([slow], positions)
    os.close(reader)
    assert "running the pipeline" in [at.stage.text for at in positions.met["m:slow"]]
    assert (result.state, [problem.rule for problem in result.problems]) == ("failed", ["GP407"])
    assert not (tmp_path / "out").exists()


def test_an_unresponsive_scheduler(capfd, tmp_path):
    (tmp_path / "graphpass.toml").write_text('[[models]]\npath = "m"\ntargets = ["cpu"]\n')
    for arguments in (["--executor", "dask"], ["--scheduler", "tcp://127.0.0.1:1"]):
        assert in_process(capfd, "ci", tmp_path, *arguments).code == 2
    with pytest.raises(UsageError, match="no Dask scheduler answers"):
        list(Fleet("tcp://127.0.0.1:1", patience=0.2).run([], Progress()))


@pytest.mark.slow
def test_workers_of_other_versions_are_refused(monkeypatch, tmp_path):
    with cluster(tmp_path, 1) as found:
        monkeypatch.setattr("graphpass.matrix.fleet.versions", lambda: {"graphpass": "0"})
        with pytest.raises(UsageError, match=r"has graphpass \d+\.\d+\.\d+\+[0-9a-f]{12}, and 0 here"):
            list(Fleet(found.scheduler).run([], Progress()))
