"""Convert a matrix of models and targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphpass.matrix.config import FailOn
from graphpass.matrix.execution import Executor
from graphpass.matrix.progress import Progress
from graphpass.matrix.project import Project
from graphpass.matrix.reports.files import write_reports
from graphpass.matrix.reports.plain import as_json, as_text
from graphpass.matrix.run import MatrixResults

from .reading import StrPath


@dataclass(frozen=True, slots=True)
class Matrix:
    """Results of a matrix, and its reports.

    Attributes:
        folder: The folder of the configuration; paths of sources in reports are relative to it.
        run: The results of all cells.

    Examples:
        >>> from graphpass import Matrix
        >>> sorted(name for name in vars(Matrix) if not name.startswith("_"))
        ['exit_code', 'folder', 'run', 'to_json', 'write']
    """

    folder: Path
    run: MatrixResults

    def __str__(self) -> str:
        return as_text(self.run)

    @property
    def exit_code(self) -> int:
        """Return the exit code of ``graphpass ci``: 0 if no cell fails."""
        return self.run.exit_code

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``graphpass ci --format json``."""
        return as_json(self.run)

    def write(self, reports: Mapping[str, Path]) -> None:
        """Write reports to files.

        Args:
            reports: Files by the format of the report: ``json``, ``junit``, ``sarif``, ``html`` or ``markdown``.

        Raises:
            WriteError: GP501, the file system's error.
        """
        write_reports(self.run, reports, self.folder)


def run_matrix(
    config: StrPath | None = None,
    *,
    select: Iterable[str] = (),
    jobs: int | None = None,
    memory: int | None = None,
    retries: int = 2,
    fail_on: Iterable[FailOn] = (),
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Matrix:
    """Convert all cells of a matrix that are not up to date.

    Each cell runs in its own process; scripts call this function under ``if __name__ == "__main__":``.

    Args:
        config: A ``graphpass.toml``, a ``pyproject.toml``, or a folder with one of them; by default the current folder
            and its parents are searched.
        select: Patterns of the cells to run: ``llama*:npu``.
        jobs: Cells to run in parallel; by default the configuration's, else the number of cores.
        memory: Memory limit of all cells together, in bytes; by default the configuration's, else the free memory.
        retries: Retries of a cell after a storage error, or if its process was killed.
        fail_on: Findings that fail the run, in addition to errors and those of the configuration.
        executor: Runs the cells elsewhere; ``jobs``, ``memory`` and ``retries`` are then ignored.
        progress: Observes the cells.

    Returns:
        The results of all cells, and the exit code of ``graphpass ci``.

    Raises:
        ReadError: GP114, the configuration cannot be read.
        UsageError: The configuration, a pattern or the baseline is invalid.

    Examples:
        >>> import graphpass
        >>> graphpass.run_matrix("missing.toml")
        Traceback (most recent call last):
        graphpass.errors.ReadError: GP114: ...
    """
    project = Project.open(None if config is None else Path(config), tuple(select))
    known = project.baseline()
    chosen = executor or project.processes(jobs, memory, retries)
    run = project.run(chosen, progress or Progress(), known, fail_on)
    return Matrix(project.config.folder, project.concluded(run, known))
