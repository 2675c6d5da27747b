"""Note inputs and settings beside a result, so that the work can be skipped."""

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
from graphpass.reports.diff.weights import digest_of_weights
from graphpass.storage.digests import digest_of_file, digests_of_files
from graphpass.storage.documents import read_json, regular

#: Version of the file's form, raised when older files cannot be compared any more.
FORM = 3

_LIBRARIES = ("numpy", "onnx", "onnxruntime", "openvino")


#: Name of the manifest in the folder of a result.
MANIFEST_FILE = "graphpass.json"

#: Names of the files that `graphpass ci` keeps beside a result: its report, its pictures, and its origin at an address.
RESULT_FILE, PICTURE_FILE, ORIGIN_FILE = "graphpass-cell.json", "graphpass-picture.json", "graphpass-origin.json"


def manifest_of(result: Path, *, is_file: bool) -> Path:
    """Return the path of a manifest: ``graphpass.json`` in a folder, ``m.xml.graphpass.json`` beside a file."""
    return result.parent / f"{result.name}.{MANIFEST_FILE}" if is_file else result / MANIFEST_FILE


def describe(
    models: Mapping[str, Model],
    passes: Mapping[str, Sequence[Pass[Any]]],
    options: Mapping[str, Any],
    *,
    weights: bool,
    copied: Iterable[str] = (),
) -> dict[str, Any]:
    """Describe the inputs and settings of a result. The same description gives the same result.

    Args:
        models: The models of the input, as they were read, from one folder: by part, ``"encoder"``, ``""`` if alone.
        passes: The pipeline of each part.
        options: Everything else that the result depends on.
        weights: Whether to digest the weights, which reads them once; see `digests_of`.
        copied: Names of further files in the folder that the result gets unchanged.

    Raises:
        ReadError: GP111 a file of the input cannot be read; GP113 it is a link to one elsewhere; GP110 it changed since
            the model was read.
    """
    source = next(iter(models.values())).path
    assert source is not None
    beside = {file.name: _digest(file) for file in companions(source, "onnx")}
    beside |= digests_of_files(source.parent, {name: (source.parent / name).stat().st_size for name in copied})
    return {
        "manifest": FORM,
        "input": _parts({name: source_of(model, weights=weights) for name, model in models.items()})
        | {"beside": beside},
        "versions": versions(),
        "options": dict(options),
        "pipeline": _parts({name: format_passes(each) for name, each in passes.items()}),
    }


def versions() -> dict[str, str]:
    """Return the versions of the distributions that results depend on, by name."""
    return dict(_versions(tuple(sys.path)))


@functools.lru_cache(maxsize=8)
def _versions(path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:  # noqa: ARG001 - keys the cache
    # They stand in files of each distribution, and each cell of a matrix asks.
    return tuple(sorted((distributions() | {name: metadata.version(name) for name in _LIBRARIES}).items()))


def write_manifest(
    path: Path,
    described: Mapping[str, Any],
    records: Mapping[str, Iterable[PassRecord]],
    graphs: Sequence[str],
    certificate: Mapping[str, Any] | None = None,
) -> None:
    """Write the manifest of the result in a staged folder, without times.

    Args:
        path: The file to write, beside the result.
        described: The return value of `describe` before the work.
        records: Results of the passes of each part.
        graphs: Names of the result's graph files, noted with digests; weights, which another result may share and add
            to, are noted with their size.
        certificate: The return value of `graphpass.artifacts.certificate.certify`, to which digests of all files are
            added.

    Raises:
        OSError: The file system's error; ``staging`` turns it into a `WriteError`.
    """
    files = sorted(file for file in path.parent.rglob("*") if file.is_file())
    output: dict[str, Any] = {str(file.relative_to(path.parent)): {"bytes": file.stat().st_size} for file in files}
    for graph in graphs:
        output[graph]["sha256"] = _digest(path.parent / graph)
    passes = _parts({name: [_told(record) for record in each] for name, each in records.items()})
    noted = {**described, "passes": passes, "graphs": list(graphs), "output": output}
    if certificate is not None:
        sizes = {name: file["bytes"] for name, file in output.items()}
        # Hard links: another model may add its weights to them.
        shared = [name for name in output if name not in graphs and (path.parent / name).stat().st_nlink > 1]
        noted["certificate"] = {**certificate, "files": digests_of_files(path.parent, sizes), "shared": shared}
        noted["certificate"]["seal"] = seal(noted)
    path.write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")


def seal(noted: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its seal."""
    certificate = {name: value for name, value in noted["certificate"].items() if name != "seal"}
    text = json.dumps({**noted, "certificate": certificate}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def stale(path: Path, described: Mapping[str, Any]) -> str | None:
    """Return why a result has to be made again; ``None`` if up to date.

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
        return f"{path.name} is damaged, or another program's"
    return _first_change(before, dict(described)) or damage(path)


def without_weights(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description whose inputs have no digests of weights."""
    source = described["input"]
    parts = {
        name: {key: value for key, value in part.items() if key != "weights"} if name != "beside" else part
        for name, part in source.items()
        if isinstance(part, dict)
    }
    alone = {key: value for key, value in source.items() if key != "weights" and not isinstance(value, dict)}
    return {**described, "input": alone | parts}


def damage(path: Path) -> str | None:
    """Return the first damage to the result beside a manifest, if any."""
    try:
        output = {path.parent / name: file for name, file in read_json(regular(path).read_bytes())["output"].items()}
        for file, known in output.items():
            if not file.resolve().is_relative_to(path.parent.resolve()):
                return f"{path.name} is damaged, or another program's"
            if not file.is_file():
                return f"{file.name} is missing"
            if file.stat().st_size < known["bytes"] or known.get("sha256") not in {None, _digest(file)}:
                return f"{file.name} was changed since it was written"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return f"{path.name} is damaged, or another program's"
    return None


def graphs_of(path: Path) -> tuple[Path, ...]:
    """Return the graph files of the result beside a manifest that is not stale."""
    return tuple(path.parent / str(name) for name in read_json(regular(path).read_bytes())["graphs"])


def source_of(model: Model, *, weights: bool) -> dict[str, Any]:
    """Return the file name and digests of a model, as it was read."""
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


def _told(record: PassRecord) -> dict[str, Any]:
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
