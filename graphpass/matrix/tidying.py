"""Remove leftovers of killed runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from graphpass.storage import memory
from graphpass.storage.addresses import is_address
from graphpass.storage.scratch_folder import sweep_scratch
from graphpass.storage.staging import remove_leftovers

from .cells import Cell

#: First letters of the folder with all temporary files of a run.
RUN_PREFIX = "graphpass-ci-"

#: First letters of folders beside weights that a runtime was shown through links.
_BESIDE_WEIGHTS = ".graphpass_model-"


def tidy(cells: Iterable[Cell]) -> None:
    """Remove what killed runs of any cells left in temporary folders, outputs and sources.

    Folders that a living process holds stay.
    """
    sweep_scratch(Path(tempfile.gettempdir()), RUN_PREFIX)
    memory.sweep_memory()
    places: set[Path] = set()
    for cell in cells:
        tidy_output(cell)
        if not is_address(cell.source):
            source = Path(cell.source)
            places.add(source if source.is_dir() else source.parent)
    for place in places:
        sweep_scratch(place, _BESIDE_WEIGHTS)


def tidy_output(cell: Cell) -> None:
    """Remove what a killed process left in and beside the output of a cell."""
    if not is_address(cell.output):
        remove_leftovers(Path(cell.output))
