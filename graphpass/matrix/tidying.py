"""Removal of temporary files of killed runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from graphpass.storage import memory
from graphpass.storage.addresses import is_address
from graphpass.storage.scratch_folder import sweep_scratch
from graphpass.storage.staging import remove_leftovers

from .cells import Cell

#: Prefix of the folder with all temporary files of a run.
RUN_PREFIX = "graphpass-ci-"

#: Prefix of folders with links to weights, created beside the weights for a runtime.
_BESIDE_WEIGHTS = ".graphpass_model-"


def tidy(cells: Iterable[Cell]) -> None:
    """Remove the temporary files that killed runs left in temporary folders, outputs and sources.

    Folders in use by a running process are kept.
    """
    sweep_scratch(Path(tempfile.gettempdir()), RUN_PREFIX)
    memory.sweep_memory()
    folders: set[Path] = set()
    for cell in cells:
        tidy_output(cell)
        if not is_address(cell.source):
            source = Path(cell.source)
            folders.add(source if source.is_dir() else source.parent)
    for folder in folders:
        sweep_scratch(folder, _BESIDE_WEIGHTS)


def tidy_output(cell: Cell) -> None:
    """Remove the temporary files that a killed process left in and beside a cell's output."""
    if not is_address(cell.output):
        remove_leftovers(Path(cell.output))
