"""Measure the throughput of a matrix: many conversions of tiny models in local processes.

python tests/benchmarks/matrix.py [CELLS] [JOBS]

Prints cells a second, and the part of the time that is not spent in the conversions themselves: starting processes,
handing results over, waiting.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.models import export

from graphpass.matrix.cells import Cell, Settings
from graphpass.matrix.execution import Processes, available_memory, usable_cores
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
        cells = cells_in(Path(scratch), count)
        start = time.perf_counter()
        run = run_matrix(cells, Processes(jobs, available_memory()), Progress())
        spent = time.perf_counter() - start
        assert run.exit_code == 0
        work = sum(result.seconds for result in run.results)
        overhead = 1 - work / (spent * jobs)
        print(
            f"{count} cells, {jobs} at a time: {spent:.1f} s, {count / spent:.2f} cells/s, {work / count:.2f} s a cell"
        )
        print(f"overhead: {overhead:.1%} of {jobs} x {spent:.1f} s")


if __name__ == "__main__":
    main()
