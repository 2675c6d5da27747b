"""Measure the throughput of a matrix: many conversions of tiny models in local processes, and on a Dask cluster.

python tests/benchmarks/matrix.py [CELLS] [JOBS]

Prints cells a second, and the part of the time that is not spent in the conversions themselves: starting processes,
handing results over, waiting. The cluster has as many workers as there are jobs; it is there before the clock starts.
"""

from __future__ import annotations

import shutil
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
from graphpass.matrix.run import Progress, run_matrix


def cells_in(folder: Path, count: int) -> list[Cell]:
    source = shutil.copytree(export("llama", "ov-stateless"), folder / "model")
    settings = Settings(steps=4)
    places = (str(folder / "out" / str(number)) for number in range(count))
    return [
        Cell(f"m{number}", "cpu", str(source), place, "cpu", None, place, settings)
        for number, place in enumerate(places)
    ]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else usable_cores()
    with tempfile.TemporaryDirectory() as scratch:
        measure("local", Processes(jobs, available_memory()), cells_in(Path(scratch, "local"), count), jobs)
        with cluster(Path(scratch), jobs) as found:
            measure("dask", Fleet(found.scheduler), cells_in(Path(scratch, "dask"), count), jobs)


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
