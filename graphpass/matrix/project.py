"""Run the cells of a configuration, and keep its baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphpass.errors import UsageError
from graphpass.machine import available_memory, usable_cores

from . import selection
from .baseline import Baseline
from .cells import Cell
from .config import Config, FailOn, find_config, load_config, size_of
from .execution import Executor, Processes
from .plan import cells_of
from .progress import Progress
from .run import Run, run_matrix
from .selection import Shard

_BASELINE = "graphpass-baseline.json"


@dataclass(frozen=True, slots=True)
class Project:
    """Holds a configuration and those of its cells that are to run.

    Attributes:
        file: The file of the configuration.
        config: The configuration.
        every: All cells.
        cells: Those to run.
        shard: The part that they are of all; ``None`` if they are not a shard.
    """

    file: Path
    config: Config
    every: tuple[Cell, ...]
    cells: tuple[Cell, ...]
    shard: Shard | None = None

    @classmethod
    def open(
        cls, path: Path | None, select: Sequence[str] = (), *, last_failed: bool = False, shard: Shard | None = None
    ) -> Project:
        """Read a configuration and choose cells.

        Args:
            path: A file, or a folder that holds one; else this folder and those above it are searched.
            select: Patterns of cells: ``llama*:npu``.
            last_failed: Whether to take cells alone that failed when they last ran.
            shard: One of several parts of the cells.

        Raises:
            ReadError: GP114, the configuration cannot be read.
            UsageError: The configuration or a pattern is not well formed.
        """
        file = find_config(path)
        config = load_config(file)
        every = cells_of(config)
        cells = selection.selected(every, select)
        if last_failed:
            cells = selection.last_failed(cells, file)
        return cls(file, config, every, cells if shard is None else shard.of(cells), shard)

    def report_file(self, name: str) -> Path | None:
        """Return the configured file of a report; ``None`` if there is none for these cells."""
        report = self.config.path_of("reports", name)
        if report is None or len(self.cells) == len(self.every):
            return report
        return None if self.shard is None else self.shard.file(report)

    def processes(self, jobs: int | None, memory: int | str | None, retries: int) -> Processes:
        """Return an executor on this machine.

        Args:
            jobs: Cells at a time; the configuration's number, or that of cores, by default.
            memory: Bytes of all cells together; the configuration's, or what is free, by default.
            retries: Further tries of a cell after an error of a storage, or after its process was killed.

        Raises:
            UsageError: GP231, ``memory`` is not a size.
        """
        try:
            bound = self.config.memory if memory is None else size_of(memory)
        except ValueError as error:
            raise UsageError(
                "GP231", f"--memory {memory}: {error}", "write 8GiB, 500 MB or a number of bytes"
            ) from error
        return Processes(
            jobs or self.config.content.get("jobs") or usable_cores(), bound or available_memory(), retries
        )

    def baseline(self, path: Path | None = None) -> Baseline:
        """Read the baseline: the given file, the configured one, or ``graphpass-baseline.json`` beside it.

        Args:
            path: The file.

        Raises:
            UsageError: GP235, it is not a baseline.
        """
        file = path or self.config.path_of("baseline") or self.config.folder / _BASELINE
        return Baseline.read(file)

    def run(self, executor: Executor, progress: Progress, baseline: Baseline, fail_on: Iterable[FailOn] = ()) -> Run:
        """Convert the cells that are not up to date.

        Args:
            executor: Runs them.
            progress: Observes them.
            baseline: Known findings.
            fail_on: Findings that fail the run besides errors, and besides the configuration's.
        """
        return run_matrix(self.cells, executor, progress, baseline.fingerprints, {*self.config.fail_on, *fail_on})

    def concluded(self, run: Run, baseline: Baseline, *, update: bool = False, strict: bool = False) -> Run:
        """Return a run with unused entries of the baseline, and remember cells that failed.

        Args:
            run: The run.
            baseline: Known findings.
            update: Whether to write the findings of this run to the baseline, unless it was interrupted.
            strict: Whether entries that do not occur fail the run.

        Raises:
            WriteError: GP501, the baseline cannot be written.
        """
        names = {cell.id for cell in self.every}
        if update and not run.interrupted:
            baseline = baseline.updated(run, names)
            baseline.write()
            run = replace(run, baseline=baseline.fingerprints)
        else:
            run = replace(run, unused=baseline.unused(run, names), strict_baseline=strict)
        selection.note_failed(run, self.file)
        return run
