"""Cells and runs of a matrix that is not run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from graphpass.matrix.cells import Cell, CellResult, Problem, Settings
from graphpass.matrix.progress import Position, Progress
from graphpass.matrix.run import MatrixResults


class Positions(Progress):
    """Keeps the positions of each cell."""

    def __init__(self) -> None:
        self.met: dict[str, list[Position]] = {}

    def moved(self, cell: Cell, at: Position) -> None:
        self.met.setdefault(cell.id, []).append(at)


def cell(model: str = "m", label: str = "cpu", **given: Any) -> Cell:
    """A cell that is not run."""
    output = f"out/{model}/{label}"
    settings = given.pop("settings", Settings())
    return Cell(model, label, f"models/{model}", output, "cpu", None, output, settings, **given)


def failed(problems: int = 1, node: str = "node", exit_code: int = 4, **given: Any) -> CellResult:
    """A cell that failed."""
    found = tuple(
        Problem("GP350", "error", f"{node}{number} is not fused: {number} ms", "try again", "", f"{node}{number}")
        for number in range(problems)
    )
    return CellResult(cell(**given), "failed", found, exit_code, f"models/{given.get('model', 'm')}/model.onnx")


def run_of(*results: CellResult, **given: Any) -> MatrixResults:
    """A run that has ended."""
    fail_on = frozenset({"error", *given.pop("fail_on", ())})
    return MatrixResults(results, frozenset(given.pop("baseline", ())), fail_on, 1.25, **given)


#: Folder of the sources.
ROOT = Path("/src")

CONVERTED = CellResult(cell("good", "npu"), "converted", file="/src/models/good.onnx")
WARNED = CellResult(
    cell("warned"),
    "converted",
    (Problem("GP350", "warning", "a is not fused", node="a"), Problem("fuse-attention", "note", "left alone: b")),
    file="/elsewhere/warned.onnx",
)
OTHERS = (CONVERTED, WARNED, replace(CONVERTED, cell=cell("old"), state="up to date"))
