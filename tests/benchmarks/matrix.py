"""Measure the throughput of a matrix: many conversions of tiny models in local processes, and on a Dask cluster.

python tests/benchmarks/matrix.py [CELLS] [JOBS]
python tests/benchmarks/matrix.py warm [CELLS]

Prints cells a second, and the part of the time that is not spent in the conversions themselves: starting processes,
handing results over, waiting. The cluster has as many workers as there are jobs; it is there before the clock starts.
With ``warm`` it prints the time of `graphpass ci`, from its start to its end and with all reports, on cells that are up
to date.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.cluster import cluster
from support.models import export

from graphpass.machine import available_memory, usable_cores
from graphpass.matrix.cells import Cell, Settings
from graphpass.matrix.execution import Executor, Processes
from graphpass.matrix.fleet import Fleet
from graphpass.matrix.progress import Progress
from graphpass.matrix.run import run_matrix


def cells_in(folder: Path, count: int) -> list[Cell]:
    source = shutil.copytree(export("llama", "ov-stateless"), folder / "model")
    settings = Settings(steps=4)
    places = (str(folder / "out" / str(number)) for number in range(count))
    return [
        Cell(f"m{number}", "cpu", str(source), place, "cpu", None, place, settings)
        for number, place in enumerate(places)
    ]


def main() -> None:
    if sys.argv[1:2] == ["warm"]:
        with tempfile.TemporaryDirectory() as scratch:
            measure_warm(Path(scratch), int(sys.argv[2]) if len(sys.argv) > 2 else 200)
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else usable_cores()
    with tempfile.TemporaryDirectory() as scratch:
        measure("local", Processes(jobs, available_memory()), cells_in(Path(scratch, "local"), count), jobs)
        with cluster(Path(scratch), jobs) as found:
            measure("dask", Fleet(found.scheduler), cells_in(Path(scratch, "dask"), count), jobs)


def measure_warm(folder: Path, count: int) -> None:
    labels = ["cpu", "gpu", "npu", "paged"]
    for number in range(-(-count // len(labels))):
        source = shutil.copytree(export("llama", "ov-stateless"), folder / "models" / f"m{number:03}")
        for file in source.iterdir():
            os.utime(file, (1, 1))  # younger ones are not remembered
    reports = "".join(f'{name} = "report.{name}"\n' for name in ("json", "junit", "sarif", "html", "markdown"))
    (folder / "graphpass.toml").write_text(
        f"[defaults]\nverify = false\n[[models]]\npath = 'models/*'\ntargets = {labels}\n[reports]\n{reports}"
    )
    command = [sys.executable, "-m", "graphpass.cli", "ci", "--quiet"]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    for name in ("cold", "warm", "warm", "warm"):
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
        spent, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{name}: {done.stdout.splitlines()[-1]}; {spent:.1f} s from start to end, {cpu:.1f} s of a core")


def measure(name: str, executor: Executor, cells: list[Cell], jobs: int) -> None:
    start = time.perf_counter()
    run = run_matrix(cells, executor, Progress())
    spent, count = time.perf_counter() - start, len(cells)
    assert run.exit_code == 0
    work = sum(result.seconds for result in run.results)
    throughput = f"{count / spent:.2f} cells/s, {work / count:.2f} s a cell"
    print(f"{name}: {count} cells, {jobs} at a time: {spent:.1f} s, {throughput}")
    print(f"overhead: {1 - work / (spent * jobs):.1%} of {jobs} x {spent:.1f} s")


if __name__ == "__main__":
    main()
