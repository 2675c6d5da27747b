"""Manifests: inputs and settings of a result, recorded to skip repeated work."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from graphpass.artifacts.companions import companions
from graphpass.engine.manager import PassRecord
from graphpass.engine.passes import Pass, Skipped
from graphpass.engine.pipeline import format_passes
from graphpass.engine.registry import distributions
from graphpass.errors import ReadError
from graphpass.ir.model import Model
from graphpass.model_files import parts_of
from graphpass.reports.diff.weights import digest_of_weights
from graphpass.storage.digests import digest_of_file, digests_of, digests_of_files
from graphpass.storage.documents import read_json, regular
from graphpass.storage.weight_file import FileRange, WeightFile

#: Version of the manifest's format, incremented if older manifests can no longer be compared.
FORM = 3

_LIBRARIES = ("numpy", "onnx", "onnxruntime", "openvino")


#: Name of the manifest in the folder of a result.
MANIFEST_FILE = "graphpass.json"

#: Names of the files that `graphpass ci` stores with a result: its report, its picture data, and its address of origin.
RESULT_FILE, PICTURE_FILE, ORIGIN_FILE = "graphpass-cell.json", "graphpass-picture.json", "graphpass-origin.json"


def manifest_of(result: Path, *, is_file: bool) -> Path:
    """Return the path of a result's manifest.

    Args:
        result: The result.
        is_file: Whether the result is a file ``m.xml``, with ``m.xml.graphpass.json`` beside it; otherwise it is a
            folder with ``graphpass.json``.
    """
    return result.parent / f"{result.name}.{MANIFEST_FILE}" if is_file else result / MANIFEST_FILE


def describe(
    models: Mapping[str, Model],
    passes: Mapping[str, Sequence[Pass[Any]]],
    options: Mapping[str, Any],
    *,
    weights: bool,
    copied: Iterable[str] = (),
) -> dict[str, Any]:
    """Describe the inputs and settings of a result; equal descriptions imply equal results.

    Args:
        models: The models of the input, as read, from one folder, by part: ``"encoder"``, or ``""`` for a single model.
        passes: The pipeline of each part.
        options: All other settings that affect the result.
        weights: Whether to include digests of the weights, which requires reading them once; see `digests_of`.
        copied: Paths of further files that are copied to the result, in the folder of `graphpass.model_files.parts_of`.

    Returns:
        A JSON object with ``manifest``, ``input``, ``versions``, ``options`` and ``pipeline``.

    Raises:
        ReadError: GP110, a file of the input changed since the model was read; GP111, a file cannot be read; GP113, a
            file is a link to a file outside the folder.
    """
    source = next(iter(models.values())).path
    assert source is not None
    beside = {file.name: _digest(file) for file in companions(source, "onnx")}
    folder, _ = parts_of(source)
    beside |= digests_of_files(folder, {name: (folder / name).stat().st_size for name in copied})
    return {
        "manifest": FORM,
        "input": _parts({name: source_of(model, weights=weights) for name, model in models.items()})
        | {"beside": beside},
        "versions": versions(),
        "options": dict(options),
        "pipeline": _parts({name: format_passes(each) for name, each in passes.items()}),
    }


def versions() -> dict[str, str]:
    """Return the versions of the distributions that affect results, by name."""
    return dict(_versions(tuple(sys.path)))


@functools.lru_cache(maxsize=8)
def _versions(path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:  # noqa: ARG001 - keys the cache
    # Versions are read from files of each distribution; each cell of a matrix needs them.
    return tuple(sorted((distributions() | {name: metadata.version(name) for name in _LIBRARIES}).items()))


def write_manifest(
    path: Path,
    described: Mapping[str, Any],
    records: Mapping[str, Iterable[PassRecord]],
    graphs: Sequence[str],
    certificate: Mapping[str, Any] | None = None,
    copies: Mapping[str, WeightFile] | None = None,
) -> None:
    """Write the manifest of a staged result, without times.

    Args:
        path: The manifest's path, beside the result.
        described: The return value of `describe` before the work.
        records: Results of the passes of each part.
        graphs: Names of the result's graph files, which are recorded with digests. Weight files are recorded with their
            size, because another result may share and extend them.
        certificate: The return value of `graphpass.artifacts.certificate.certify`; digests of all files are added.
        copies: Files of the result, by path in its folder, that equal another file, which is read in their place: its
            digest may be cached.

    Raises:
        OSError: The file system reports an error; ``staging`` converts it to a `WriteError`.
        ReadError: GP111, a graph file cannot be read.
    """
    files = sorted(file for file in path.parent.rglob("*") if file.is_file())
    output: dict[str, Any] = {str(file.relative_to(path.parent)): {"bytes": file.stat().st_size} for file in files}
    for graph in graphs:
        output[graph]["sha256"] = _digest(path.parent / graph)
    passes = _parts({name: [_recorded(record) for record in each] for name, each in records.items()})
    noted = {**described, "passes": passes, "graphs": list(graphs), "output": output}
    if certificate is not None:
        sizes = {name: file["bytes"] for name, file in output.items()}
        # Another model that shares a hard link may append its weights.
        shared = [name for name in output if name not in graphs and (path.parent / name).stat().st_nlink > 1]
        noted["certificate"] = {**certificate, "files": _digests(path.parent, sizes, copies or {}), "shared": shared}
        noted["certificate"]["seal"] = seal(noted)
    path.write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")


def _digests(folder: Path, sizes: Mapping[str, int], copies: Mapping[str, WeightFile]) -> dict[str, str]:
    ranges = {name: FileRange(file, 0, file.size) for name, file in copies.items() if file.size == sizes.get(name)}
    digests = digests_of(ranges.values())
    read = {name: digests[byte_range] for name, byte_range in ranges.items()}
    return digests_of_files(folder, {name: size for name, size in sizes.items() if name not in read}) | read


def seal(noted: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its seal."""
    certificate = {name: value for name, value in noted["certificate"].items() if name != "seal"}
    text = json.dumps({**noted, "certificate": certificate}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def stale(path: Path, described: Mapping[str, Any]) -> str | None:
    """Return why a result must be computed again; ``None`` if it is up to date.

    Args:
        path: The manifest.
        described: The return value of `describe`, weights included.
    """
    if not path.is_file():
        return "there is no earlier result"
    try:
        noted = read_json(regular(path).read_bytes())
        before = {key: noted[key] for key in described}
    except (OSError, ValueError, LookupError, TypeError):
        return f"{path.name} is not a valid manifest of graphpass"
    return _first_change(before, dict(described)) or damage(path)


def without_weights(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description without digests of the inputs' weights."""
    source = described["input"]
    parts = {
        name: {key: value for key, value in part.items() if key != "weights"} if name != "beside" else part
        for name, part in source.items()
        if isinstance(part, dict)
    }
    alone = {key: value for key, value in source.items() if key != "weights" and not isinstance(value, dict)}
    return {**described, "input": alone | parts}


def damage(path: Path) -> str | None:
    """Return the first difference between a manifest and the files of its result, if any.

    Raises:
        ReadError: GP111, a file cannot be read.
    """
    try:
        output = {path.parent / name: file for name, file in read_json(regular(path).read_bytes())["output"].items()}
        for file, known in output.items():
            if not file.is_file():
                return f"{file.name} is missing"
            if not file.resolve().is_relative_to(path.parent.resolve()):
                return f"{path.name} is not a valid manifest of graphpass"
            if file.stat().st_size < known["bytes"] or known.get("sha256") not in {None, _digest(file)}:
                return f"{file.name} changed since the result was written"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return f"{path.name} is not a valid manifest of graphpass"
    return None


def graphs_of(path: Path) -> tuple[Path, ...]:
    """Return the graph files of the result of a manifest, which must not be stale."""
    return tuple(path.parent / str(name) for name in read_json(regular(path).read_bytes())["graphs"])


def source_of(model: Model, *, weights: bool) -> dict[str, Any]:
    """Return the file name and digests of a model, as read.

    Args:
        model: A model that was read from a file.
        weights: Whether to include digests of the weights, which requires reading them once; see `digests_of`.

    Raises:
        ReadError: GP111, a file cannot be read.
    """
    assert model.path is not None
    source = {"file": model.path.name, "sha256": _digest(model.path)}
    return source | {"weights": digest_of_weights(model)} if weights else source


def _parts(noted: dict[str, Any]) -> Any:
    return noted[""] if list(noted) == [""] else noted


def _first_change(before: Any, after: Any) -> str | None:
    pending = [("", before, after)]
    while pending:
        name, before, after = pending.pop(0)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            keys = {**before, **after}
            pending[:0] = [(f"{name} {key}".strip(), before.get(key), after.get(key)) for key in keys]
        elif name.startswith("input ") and name.endswith(" weights") and before is None:
            return "the content of the weights was not recorded; --if-changed records it"
        elif name.startswith("input "):
            return f"{name} changed"
        else:
            return f"{name} was {json.dumps(before)} and is {json.dumps(after)}"
    return None


def _recorded(record: PassRecord) -> dict[str, Any]:
    result = record.result
    if isinstance(result, Skipped):
        return {"pass": record.step.name, "skipped": result.reason}
    noted = {"pass": record.step.name, "changed": result.changed}
    return noted | {"did": dict(result.statistics)} if result.statistics else noted


def _digest(path: Path) -> str:
    try:
        return digest_of_file(path)
    except OSError as error:
        raise ReadError("GP111", f"{path} cannot be read: {error.strerror}") from error
