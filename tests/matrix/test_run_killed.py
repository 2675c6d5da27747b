"""Runs of a matrix whose processes are killed at random: reports or a clean resume, and nothing left behind.

    python tests/matrix/test_run_killed.py 200 [SEED]

kills as often as it is told and prints what was killed, how, when, and how the run ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.folders import folder_contents
from support.models import export
from support.report_schemas import assert_valid_report

from graphpass.artifacts.manifest import damage

CELLS, PROVEN = 12, 2

#: Reports on cells hold times, and what they are made for; the rest is the same, byte for byte.
TIMED = ("graphpass-cell.json", "graphpass-picture.json")

#: A file that each process with ONNX Runtime leaves.
_OF_ONNX_RUNTIME = ".ses"

VICTIMS = ("worker", "server", "parent", "all")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass
class Project:
    """A folder with a configuration, and temporary and cache folders of its own."""

    folder: Path

    def __post_init__(self):
        for name in ("project", "tmp", "cache"):
            (self.folder / name).mkdir(parents=True)
        source = export("llama", "ov-stateless")
        # Proofs take most of a cell's time, and kills are to meet all else, too.
        verify = ["true" if n < PROVEN else "false" for n in range(CELLS)]
        pipelines = ", ".join(
            f"{{name = 'p{n}', pipeline = 'fuse-attention', verify = {verify[n]}}}" for n in range(CELLS)
        )
        (self.folder / "project" / "graphpass.toml").write_text(
            f"[defaults]\nsteps = 1\n[[models]]\nname = 'm'\npath = '{source}'\npipelines = [{pipelines}]\n"
        )

    def start(self):
        command = [sys.executable, "-m", "graphpass.cli", "ci", "--jobs", "3", "--report-json", "report.json"]
        environment = os.environ | {"TMPDIR": str(self.folder / "tmp"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.Popen(
            command,
            cwd=self.folder / "project",
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def results(self):
        """The files of each cell, without those that hold times."""
        place = self.folder / "project" / "converted" / "m"
        return {
            cell.name: {name: text for name, text in folder_contents(cell).items() if name not in TIMED}
            for cell in (sorted(place.iterdir()) if place.exists() else ())
            if cell.is_dir() and not cell.name.startswith(".") and (cell / "graphpass.json").exists()
        }

    def left_behind(self):
        found = [path for path in (self.folder / "project").rglob(".*") if "graphpass" in path.name]
        found += [path for path in (self.folder / "tmp").iterdir() if path.name != _OF_ONNX_RUNTIME]
        return [str(path) for path in [*found, *(self.folder / "cache").rglob("*.new")]]


def members(session):
    """Processes of a session by their part in the run."""
    found = {"worker": [], "server": [], "parent": [session], "all": []}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                pid, parent = int(place.name), int(fields[1])
                found["all"].append(pid)
                if "forkserver" in words:
                    found["server" if parent == session else "worker"].append(pid)
    return found


def kill_once(project, reference, seconds, chance):
    """Kill something of a run, hold its results to those of another run, and resume it.

    Args:
        project: The project.
        reference: The results of a run that nobody killed.
        seconds: Its time.
        chance: Picks victim, signal and time.

    Returns:
        What happened; ``None`` if the run had ended before.
    """
    victim, number = chance.choice(VICTIMS), chance.choice(SIGNALS)
    delay = chance.uniform(0.02, 1) * seconds
    process = project.start()
    killed = 0
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        if process.poll() is None:
            pids = members(process.pid)[victim]
            for pid in pids if victim == "all" else chance.sample(pids, min(1, len(pids))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    killed += 1
        errors = process.communicate(timeout=120)[1]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    told = f"{victim} {number.name} after {delay:.2f} s, {killed} killed: exit code {process.returncode}"
    assert process.returncode in {0, 1, 130, -9, -15, -2}, told + errors
    began = "] m:p" in errors
    if killed and began and process.returncode >= 0:  # whatever lives on reports
        report = json.loads((project.folder / "project" / "report.json").read_text())
        assert_valid_report(report)
        assert report["exit_code"] == process.returncode, told
    ended = time.monotonic() + 20
    while members(process.pid)["all"] and time.monotonic() < ended:
        time.sleep(0.05)
    assert not members(process.pid)["all"], told
    for name, files in project.results().items():
        assert files == reference[name], f"{told}: {name} is wrong"
        assert damage(project.folder / "project" / "converted" / "m" / name / "graphpass.json") is None
    again = project.start()
    errors = again.communicate(timeout=120)[1]
    assert again.returncode == 0, f"{told}, and then: {errors}"
    assert project.results() == reference, told
    assert project.left_behind() == [], f"{told}: {project.left_behind()}"
    return told if killed else None


def whole(folder):
    project = Project(folder)
    process = project.start()
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 0, errors
    assert project.left_behind() == [], project.left_behind()
    found = project.results()
    assert len(found) == CELLS
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")
def test_killed_runs_resume():
    # Sockets of the server that forks lie in TMPDIR, and their paths have 108 characters at most.
    with tempfile.TemporaryDirectory(prefix="k") as folder:
        kill_often(Path(folder), 5, random.Random(1))


def kill_often(folder, count, chance):
    start = time.monotonic()
    reference = whole(folder / "reference")
    seconds = time.monotonic() - start
    number = tries = 0
    while number < count:
        told = kill_once(Project(folder / str(tries := tries + 1)), reference, seconds, chance)
        if told is not None:
            number += 1
            print(f"{number}: {told}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        kill_often(Path(scratch), int(sys.argv[1]), random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0))
