"""Reports stored beside the results of cells, and records of the cells' input files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.artifacts.manifest import MANIFEST_FILE, PICTURE_FILE, RESULT_FILE, damage, versions
from graphpass.storage import memory
from graphpass.storage.addresses import StoredFolder, is_address
from graphpass.storage.digests import digest_of_file
from graphpass.storage.documents import read_json, regular

from .cells import Cell, CellResult, Problem

if TYPE_CHECKING:
    from graphpass.reports.outcome import ModelReport, Outcome


def write_result(folder: Path, result: CellResult) -> None:
    """Write the report on a cell, beside the manifest of its result.

    Args:
        folder: The staged folder, which has the manifest.
        result: The result of the cell.
    """
    content = result.to_json() | {"manifest": digest_of_file(folder / MANIFEST_FILE)}
    (folder / RESULT_FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def earlier_result(cell: Cell) -> CellResult:
    """Return the report on the conversion that wrote the current result.

    Returns:
        A report without findings if ``graphpass convert`` wrote the result.
    """
    return result_of(cell, *(_content(Path(cell.output) / name) for name in (RESULT_FILE, MANIFEST_FILE)))


def result_of(cell: Cell, content: bytes, manifest: bytes) -> CellResult:
    """Return the report in a file, with state ``up to date``.

    Args:
        cell: The cell.
        content: Content of the file.
        manifest: Content of the manifest beside the file. If a later conversion wrote the manifest, the report is
            ignored.
    """
    try:
        report = _beside(content, manifest)
        names = Problem.__slots__
        problems = tuple(Problem(**{name: problem[name] for name in names}) for problem in report["problems"])
        outcome = dict(report["outcome"])
        return CellResult(cell, "up to date", problems, file=report["file"], outcome=outcome, memory=report["memory"])
    except (ValueError, LookupError, TypeError):
        return CellResult(cell, "up to date", file=cell.source)


def draw(reports: Iterable[ModelReport]) -> list[dict[str, Any]]:
    """Return pictures of models before and after their pipelines."""
    from graphpass.reports.diff import diff_models
    from graphpass.reports.picture import picture_of

    return [
        picture_of(["before", "after"], report.before, report.after, diff_models(report.before, report.after))
        for report in reports
    ]


def write_pictures(folder: Path, pictures: Sequence[Mapping[str, Any]]) -> None:
    """Write pictures of a cell's models for later reports, beside the manifest.

    Args:
        folder: The staged folder, which has the manifest.
        pictures: The return value of `draw`.
    """
    content = {"manifest": digest_of_file(folder / MANIFEST_FILE), "pictures": list(pictures)}
    (folder / PICTURE_FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")


def pictures_of(cell: Cell) -> list[dict[str, Any]]:
    """Return the pictures of a cell's current result, one for each model."""
    if is_address(cell.output):
        stored = StoredFolder(cell.output)
        content, manifest = stored.read(PICTURE_FILE) or b"", stored.read(MANIFEST_FILE) or b""
    else:
        content, manifest = (_content(Path(cell.output) / name) for name in (PICTURE_FILE, MANIFEST_FILE))
    try:
        return list(_beside(content, manifest)["pictures"])
    except (ValueError, LookupError, TypeError):
        return []


def _beside(content: bytes, manifest: bytes) -> dict[str, Any]:
    """Return the object in a file beside a manifest.

    Raises:
        LookupError: The file belongs to another manifest.
    """
    report: dict[str, Any] = read_json(content)
    if report["manifest"] != hashlib.sha256(manifest).hexdigest():
        raise LookupError("the file belongs to another result")
    return report


def _content(file: Path) -> bytes:
    try:
        return regular(file).read_bytes()
    except OSError:  # empty content counts as damaged
        return b""


def remember_cell(cell: Cell, outcome: Outcome) -> None:
    """Record size and times of a cell's input files, in the user's cache folder.

    Args:
        cell: The converted cell.
        outcome: The outcome of its conversion; all files in the folders of its sources are recorded.
    """
    inputs = _state({file.absolute().parent for file in outcome.sources})
    if all(memory.is_settled(file[1], file[2]) for file in inputs.values()):
        memory.remember(memory.memory_of("cells", cell.output), _key(cell) | {"inputs": inputs})


def remembered_cell(cell: Cell) -> CellResult | None:
    """Return the result of a cell whose input files have the recorded sizes and times.

    No model is read. After ``None``, the result may still be up to date: `run_cell` compares contents with the
    manifest.
    """
    if cell.published != cell.output:
        return None
    try:
        known = read_json(memory.memory_of("cells", cell.output).read_bytes())
        inputs = {Path(file).parent for file in known["inputs"]}
        same = known == json.loads(json.dumps(_key(cell))) | {"inputs": _state(inputs)}
    except (OSError, ValueError, LookupError, TypeError):
        return None
    if not same or damage(Path(cell.output) / MANIFEST_FILE) is not None:
        return None
    return earlier_result(cell)


def _state(folders: set[Path]) -> dict[str, list[int]]:
    """Return size, times and inode of all files in ``folders``."""
    state = {}
    for folder in sorted(folders):
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_file():
                    status = os.stat(entry.path)
                    times = [status.st_mtime_ns, status.st_ctime_ns]
                    state[entry.path] = [status.st_size, *times, status.st_ino]
    return state


def _key(cell: Cell) -> dict[str, Any]:
    return {"cell": asdict(cell), "versions": versions()}
