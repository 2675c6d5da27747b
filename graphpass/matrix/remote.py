"""Conversion of cells with remote models or results, in a scratch folder."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graphpass.artifacts.manifest import MANIFEST_FILE, ORIGIN_FILE, RESULT_FILE, damage, manifest_of, versions
from graphpass.errors import GraphpassError, ReadError
from graphpass.storage.addresses import StoredFile, StoredFolder, is_address
from graphpass.storage.documents import read_json

from .cell_memory import earlier_result, result_of, write_result
from .cells import Cell, CellResult, Problem

#: Size of the largest file that is fetched without a reference from a graph; tokenizers have up to 40 MB.
_COMPANION = 64 * 2**20

#: Suffixes of model files.
_GRAPHS = (".onnx", ".xml")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Hooks of a conversion that differ for remote results.

    Attributes:
        published: Returns the folder of the last published result, for the folder of the staged result.
        keep: Writes the report on the cell to the staged folder.
    """

    published: Callable[[Path], Path]
    keep: Callable[[Path, CellResult], None]


Convert = Callable[[Cell, Surroundings], CellResult]
"""Converts a cell with local paths."""


def has_address(cell: Cell) -> bool:
    """Return whether the model or a result of a cell is in a remote storage."""
    return any(map(is_address, (cell.source, cell.output, cell.published)))


def run_remote(cell: Cell, convert: Convert) -> CellResult:
    """Convert a cell with an address, unless its result is up to date.

    This check reads listings and small files only. A result is published if its manifest is in the storage. If several
    processes work on one result, the first converts.

    Args:
        cell: A cell with an address.
        convert: Converts a cell with local paths.

    Returns:
        The result of the conversion; that of the earlier one if it is up to date.

    Raises:
        GraphpassError: As ``convert``; GP115 and GP505, a storage cannot be reached; GP504, another process published
            the result in the meantime.
    """
    source = _Source.of(cell.source)
    origin = _described(cell, source)
    output = StoredFolder(cell.output) if is_address(cell.output) else None
    if (earlier := _earlier(cell, output, origin)) is not None:
        return earlier
    if output is None:
        return _convert(cell, convert, source, origin, Path(cell.output))
    with output.leased() as lease, tempfile.TemporaryDirectory(prefix="graphpass-") as scratch:
        # The previous owner of the lease may have published the result.
        if (earlier := _earlier(cell, output, origin)) is not None:
            return earlier
        result = _convert(cell, convert, source, origin, Path(scratch, "output"))
        output.publish(Path(scratch, "output"), MANIFEST_FILE, lease)
    return result


def why_unpublished(cell: Cell) -> str | None:
    """Return why a remote cell is stale; ``None`` if it is up to date.

    Raises:
        GraphpassError: A storage cannot be reached.
    """
    output = StoredFolder(cell.output) if is_address(cell.output) else None
    if _earlier(cell, output, _described(cell, _Source.of(cell.source))) is not None:
        return None
    return "no result of the same input, options and versions is published"


def _convert(cell: Cell, convert: Convert, source: _Source, origin: Mapping[str, Any], folder: Path) -> CellResult:
    with tempfile.TemporaryDirectory(prefix="graphpass-") as scratch:
        names = {str(folder): cell.output}
        if source.folder is not None:
            names = {str(Path(scratch, "input")): source.folder.address, **names}

        def keep(staged: Path, result: CellResult) -> None:
            write_result(staged, _renamed(result, cell, names))
            (staged / ORIGIN_FILE).write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")

        def published(staged: Path) -> Path:
            return _published(cell.published, staged, Path(scratch, "published"))

        try:
            local = source.fetched(Path(scratch, "input"))
            inside = replace(cell, source=str(local), output=str(folder), published=str(folder))
            return _renamed(convert(inside, Surroundings(published, keep)), cell, names)
        except GraphpassError as error:
            error.message, error.hint = _with(names, error.message), _with(names, error.hint)
            raise


@dataclass(frozen=True, slots=True)
class _Source:
    """The files of a model.

    Attributes:
        path: Path or address of the model.
        folder: The remote folder; ``None`` for a local path.
        file: Name of the model's file; empty if ``path`` is a folder.
        files: All files of the remote folder.
    """

    path: str
    folder: StoredFolder | None
    file: str
    files: Mapping[str, StoredFile]

    @classmethod
    def of(cls, path: str) -> _Source:
        if not is_address(path):
            # The conversion compares the contents of local files with the manifest.
            return cls(path, None, "", {})
        folder, file = StoredFolder(path), ""
        if folder.is_file():
            parent, _, file = path.rpartition("/")
            folder = StoredFolder(parent)
        files = folder.files(depth=1)
        if not files:
            raise ReadError("GP101", f"{path} does not exist", "pass a folder or a model file")
        return cls(path, folder, file, files)

    def fetched(self, to: Path) -> Path:
        """Download the files that the model needs.

        Returns:
            The local path of the model.
        """
        if self.folder is None:
            return Path(self.path)
        to.mkdir()
        graphs = [self.file] if self.file else [name for name in self.files if name.lower().endswith(_GRAPHS)]
        self.folder.fetch(graphs, to)
        needed = {name for graph in graphs for name in _weights_of(to / graph)}
        needed |= {name for name, known in self.files.items() if known.bytes <= _COMPANION}
        self.folder.fetch(sorted(name for name in needed if name in self.files and name not in graphs), to)
        return to / self.file


def _weights_of(graph: Path) -> set[str]:
    """Return the names of the weight files of a model file."""
    if graph.suffix.lower() == ".xml":
        return {graph.with_suffix(".bin").name}
    from graphpass.dialects.onnx.model import parse_onnx
    from graphpass.dialects.onnx.tensors import is_external, tensors

    external = (tensor for tensor in tensors(parse_onnx(graph)) if is_external(tensor))
    return {entry.value for tensor in external for entry in tensor.external_data if entry.key == "location"}


def _described(cell: Cell, source: _Source) -> dict[str, Any]:
    """Return the cell, versions and input files, which determine the result."""
    inputs = {name: asdict(known) for name, known in source.files.items()}
    described = {"cell": asdict(cell), "versions": versions(), "inputs": inputs}
    content: dict[str, Any] = json.loads(json.dumps(described))
    return content


def _earlier(cell: Cell, output: StoredFolder | None, origin: Mapping[str, Any]) -> CellResult | None:
    """Return the report on a complete result of the same origin; ``None`` if none exists."""
    if not origin["inputs"]:
        return None
    if output is None:
        try:
            known = read_json((Path(cell.output) / ORIGIN_FILE).read_bytes())
        except (OSError, ValueError):
            return None
        whole = damage(manifest_of(Path(cell.output), is_file=False)) is None
        return earlier_result(cell) if whole and known == origin else None
    try:
        known = read_json(output.read(ORIGIN_FILE) or b"null")
        manifest = output.read(MANIFEST_FILE) or b"null"
        listed = read_json(manifest)
        if known != origin or listed is None:
            return None
        files = output.files()
        if all(name in files and files[name].bytes == entry["bytes"] for name, entry in listed["output"].items()):
            return result_of(cell, output.read(RESULT_FILE) or b"", manifest)
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    return None


def _published(path: str, staged: Path, scratch: Path) -> Path:
    """Return a local folder with the last published result; the staged folder if equal."""
    if not is_address(path):
        return Path(path)
    folder = StoredFolder(path)
    manifest = folder.read(MANIFEST_FILE)
    if manifest == (staged / MANIFEST_FILE).read_bytes():
        return staged
    if manifest is not None:
        # A model cannot be read without its weights.
        folder.fetch(folder.files(), scratch)
    return scratch


def _renamed(result: CellResult, cell: Cell, names: Mapping[str, str]) -> CellResult:
    """Return a result with paths in scratch folders replaced by addresses."""

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            return _with(names, value)
        if isinstance(value, Mapping):
            return {key: renamed(value) for key, value in value.items()}
        return [renamed(value) for value in value] if isinstance(value, (list, tuple)) else value

    problems = tuple(Problem(**renamed(asdict(problem))) for problem in result.problems)
    outcome = renamed(result.outcome)
    return replace(result, cell=cell, problems=problems, file=renamed(result.file), outcome=outcome)


def _with(names: Mapping[str, str], text: Any) -> Any:
    for path, address in names.items():
        text = text.replace(path, address) if text else text
    return text
