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
from graphpass.matrix.run import Run

from .reading import StrPath


@dataclass(frozen=True, slots=True)
class Matrix:
    """Reports on a run of a matrix.

    Attributes:
        folder: The folder of the configuration, which reports name sources relative to.
        run: The results of all cells.

    Examples:
        >>> from graphpass import Matrix
        >>> sorted(name for name in vars(Matrix) if not name.startswith("_"))
        ['exit_code', 'folder', 'run', 'to_json', 'write']
    """

    folder: Path
    run: Run

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
        """Write reports.

        Args:
            reports: Files by the name of the report: ``json``, ``junit``, ``sarif``, ``html`` or ``markdown``.

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

    Each runs in a process of its own; scripts call this under ``if __name__ == "__main__":``.

    Args:
        config: A ``graphpass.toml``, a ``pyproject.toml``, or a folder that holds one; this folder and those above it
            are searched by default.
        select: Patterns of cells to take: ``llama*:npu``.
        jobs: Cells at a time; the configuration's number, or that of cores, by default.
        memory: Bytes of all cells together; the configuration's, or what is free, by default.
        retries: Further tries of a cell after an error of a storage, or after its process was killed.
        fail_on: Findings that fail the run besides errors, and besides the configuration's.
        executor: Runs the cells somewhere else; ``jobs``, ``memory`` and ``retries`` are its own then.
        progress: Observes the cells.

    Returns:
        The results of all cells, and the exit code of ``graphpass ci``.

    Raises:
        ReadError: GP114, the configuration cannot be read.
        UsageError: The configuration, a pattern or the baseline is not well formed.

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
