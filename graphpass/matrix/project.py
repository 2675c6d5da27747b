"""Runs of a configuration's cells, with its baseline."""

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
from .run import MatrixResults, run_matrix
from .selection import Shard

_BASELINE = "graphpass-baseline.json"


@dataclass(frozen=True, slots=True)
class Project:
    """A configuration, and the selection of its cells to run.

    Attributes:
        file: The file of the configuration.
        config: The configuration.
        every: All cells.
        cells: The cells to run.
        shard: The shard of the cells to run; ``None`` without sharding.
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
        """Read a configuration and select cells.

        Args:
            path: The file, or a folder with it; ``None`` to search the current folder and its parents.
            select: Patterns of cells: ``llama*:npu``.
            last_failed: Whether to select only cells that failed in their last run.
            shard: The shard to select.

        Returns:
            The project, with the selected cells.

        Raises:
            ReadError: GP114, the configuration cannot be read.
            UsageError: The configuration is invalid, or no cell matches a pattern.
        """
        file = find_config(path)
        config = load_config(file)
        every = cells_of(config)
        cells = selection.selected(every, select)
        if last_failed:
            cells = selection.last_failed(cells, file)
        return cls(file, config, every, cells if shard is None else shard.of(cells), shard)

    def report_file(self, name: str) -> Path | None:
        """Return the configured file of a report; ``None`` if a selection of cells runs."""
        report = self.config.path_of("reports", name)
        if report is None or len(self.cells) == len(self.every):
            return report
        return None if self.shard is None else self.shard.file(report)

    def processes(self, jobs: int | None, memory: int | str | None, retries: int) -> Processes:
        """Return an executor on this machine.

        Args:
            jobs: Cells to run in parallel; by default the configuration's, else the number of cores.
            memory: Memory limit of all cells together, in bytes or as ``8GB``; by default the configuration's, else the
                free memory.
            retries: Retries of a cell after a storage error, or if its process was killed.

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
        """Read the baseline.

        Args:
            path: The file; by default the configured one, else ``graphpass-baseline.json`` in the folder.

        Returns:
            The baseline; without findings if the file does not exist.

        Raises:
            UsageError: GP235, the file is not a baseline.
        """
        file = path or self.config.path_of("baseline") or self.config.folder / _BASELINE
        return Baseline.read(file)

    def run(
        self, executor: Executor, progress: Progress, baseline: Baseline, fail_on: Iterable[FailOn] = ()
    ) -> MatrixResults:
        """Convert the cells that are not up to date.

        Args:
            executor: Runs the cells.
            progress: Observes the cells.
            baseline: Known findings.
            fail_on: Findings that fail the run, in addition to errors and those of the configuration.

        Returns:
            A result for each selected cell.
        """
        return run_matrix(self.cells, executor, progress, baseline.fingerprints, {*self.config.fail_on, *fail_on})

    def concluded(
        self, run: MatrixResults, baseline: Baseline, *, update: bool = False, strict: bool = False
    ) -> MatrixResults:
        """Return a run with the unused entries of the baseline, and record the failed cells.

        Args:
            run: The run.
            baseline: Known findings.
            update: Whether to write the findings of this run to the baseline, unless it was interrupted.
            strict: Whether unused entries fail the run.

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
