"""Certificates: the proof of a result with digests of its files.

A certificate detects damage, edits, and files mixed from several results. It is not a signature: write access to the
result suffices to replace it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.artifacts.manifest import FORM, ORIGIN_FILE, PICTURE_FILE, RESULT_FILE, manifest_of, seal, source_of
from graphpass.errors import ReadError, UsageError, VerificationError
from graphpass.machine import usable_cores
from graphpass.storage.documents import read_json, regular

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.verify import Comparison

_HINT = "convert the model again"
_WITH_PROOF = f"{_HINT}, without --no-verify"

_CHUNK = 2**20

_NO_SIGNATURE = "not a signature: write access to the result suffices to replace it"


def certify(comparison: Comparison, inputs: Mapping[str, Model]) -> dict[str, Any]:
    """Return the results of a comparison that are reproducible.

    The largest difference is rounded to one digit, because the summation order of runtimes varies.

    Args:
        comparison: The comparison of a result with its input.
        inputs: The models of the input, as read, by part.

    Raises:
        ReadError: GP110 and GP111, weights of the input cannot be read.
    """
    report = comparison.to_json()
    largest = comparison.max_abs_difference
    return {
        "verdict": "same" if comparison.passed else "different",
        "reference": {name: source_of(model, weights=True) for name, model in inputs.items()},
        "sequences": [
            {
                "description": run.description,
                "rows": len(run.prompt_ids),
                "tokens": max(map(len, run.prompt_ids), default=0) + run.steps,
                "selects_rows": any(word.startswith("select") for words in run.edits for word in words),
            }
            for run in comparison.sequences
        ],
        "outputs": list(comparison.outputs),
        "largest_difference": float(f"{largest:.0e}"),
        "reach": report["reach"],
        "structure": report["structure"],
        "layers": {
            "run": [part.name for part in comparison.parts if part.like is None],
            "inferred": {part.name: part.like for part in comparison.parts if part.like is not None},
        },
        "not_compared": list(comparison.skipped),
        "warnings": list(comparison.warnings),
    }


def check_certificate(result: Path, reference: Model | None = None) -> dict[str, Any]:
    """Return the certificate of a result after checking that its files match.

    Args:
        result: A folder that `convert` or `run` wrote, or a model file of `run`.
        reference: The model that the result must be proven against; ``None`` accepts any.

    Raises:
        UsageError: GP269, there is no certificate, as after ``--no-verify``.
        ReadError: GP101, the result does not exist; GP118, it cannot be read, or violates the schema of manifests.
        VerificationError: GP604, a file is missing, added or changed; the manifest was edited; or the
            result was proven against another model than ``reference``.
    """
    if not result.exists():
        raise ReadError("GP101", f"{result} does not exist", "name a folder or file that convert or run wrote")
    manifest = manifest_of(result, is_file=result.is_file())
    noted = _read(manifest)
    certificate: dict[str, Any] = noted["certificate"]
    if certificate["seal"] != seal(noted):
        raise VerificationError("GP604", f"{manifest} was edited since the result was proven", _HINT)
    if certificate["verdict"] != "same":
        raise VerificationError("GP604", f"{manifest} certifies that the result differs from its input", _HINT)
    if set(certificate["files"]) != set(noted["output"]) or not set(noted["graphs"]) <= set(noted["output"]):
        raise VerificationError("GP604", f"{manifest} does not certify all files of the result", _HINT)
    _check_files(manifest, noted, is_folder=not result.is_file())
    if reference is not None and source_of(reference, weights=True) not in certificate["reference"].values():
        raise VerificationError("GP604", f"the result was proven against another model than {reference.path}", _HINT)
    return certificate | {"versions": noted["versions"]}


def _read(manifest: Path) -> dict[str, Any]:
    invalid = f"{manifest} is not a valid manifest of graphpass"
    try:
        noted = read_json(regular(manifest).read_bytes())
    except FileNotFoundError as error:
        raise UsageError("GP269", f"there is no {manifest}", _WITH_PROOF) from error
    except (OSError, ValueError) as error:
        raise ReadError("GP118", invalid) from error
    if not isinstance(noted, dict):
        raise ReadError("GP118", f"{invalid}: expected a JSON object")
    if "certificate" not in noted:
        raise UsageError("GP269", f"{manifest} has no certificate", _WITH_PROOF)
    if noted.get("manifest") != FORM:
        reason = f"{manifest} has format {noted.get('manifest')!r}, and this version of graphpass reads format {FORM}"
        raise ReadError("GP118", reason, _HINT)
    if (offence := next(_offences(noted), None)) is not None:
        raise ReadError("GP118", f"{invalid}: {offence}")
    return noted


def _offences(noted: Mapping[str, Any]) -> Iterator[str]:
    """Yield the violations of a manifest's schema."""
    from importlib import resources

    from jsonschema import Draft202012Validator

    text = resources.files("graphpass.reports").joinpath("schemas/manifest.json").read_text(encoding="utf-8")
    for error in Draft202012Validator(json.loads(text)).iter_errors(noted):
        reason = error.message if len(error.message) < 200 else f"violates the rule {error.validator}"
        yield f"{'.'.join(map(str, error.absolute_path)) or 'the object'}: {reason}"


def _check_files(manifest: Path, noted: Mapping[str, Any], *, is_folder: bool) -> None:
    """Check that all files of a result equal the proven ones, by reading them.

    Raises:
        ReadError: GP118, the manifest names a file in another folder; GP111, a file cannot be read.
        VerificationError: GP604, a file is missing, was changed or was added.
    """
    folder, expected = manifest.parent, noted["certificate"]["files"]
    shared = set(noted["certificate"]["shared"])
    for name in expected:
        file, size = folder / name, noted["output"][name]["bytes"]
        # A link to itself cannot be resolved.
        if file.is_file() and not file.resolve().is_relative_to(folder.resolve()):
            raise ReadError("GP118", f"{manifest} is not a valid manifest of graphpass: {name} is in another folder")
        if not file.is_file() or file.stat().st_size < size:
            raise VerificationError("GP604", f"{file} is missing or shorter than when the result was proven", _HINT)
        if name not in shared and file.stat().st_size > size:
            raise VerificationError("GP604", f"{file} is longer than when the result was proven", _HINT)
    if is_folder and (added := _added(manifest, expected)):
        raise VerificationError("GP604", f"files added since the result was proven: {', '.join(added)}", _HINT)
    sizes = [noted["output"][name]["bytes"] for name in expected]
    with ThreadPoolExecutor(usable_cores()) as threads:
        digests = threads.map(_digest, [folder / name for name in expected], sizes)
        changed = [
            str(folder / name) for name, digest in zip(expected, digests, strict=True) if digest != expected[name]
        ]
    if changed:
        raise VerificationError("GP604", f"files changed since the result was proven: {', '.join(changed)}", _HINT)


def _added(manifest: Path, known: Mapping[str, str]) -> list[str]:
    """Return the visible files in the folder that do not belong to the result."""
    folder = manifest.parent
    names = (file.relative_to(folder) for file in sorted(folder.rglob("*")) if not file.is_dir())
    expected = {*known, manifest.name, RESULT_FILE, PICTURE_FILE, ORIGIN_FILE}
    visible = (name for name in names if not any(part.startswith(".") for part in name.parts))
    return [str(folder / name) for name in visible if name.as_posix() not in expected]


def _digest(file: Path, size: int) -> str:
    """Return the SHA-256 of the first bytes of a file, without the cache.

    Raises:
        ReadError: GP111, the file cannot be read.
    """
    hasher, left = hashlib.sha256(), size
    try:
        with regular(file).open("rb") as stream:
            while left and (chunk := stream.read(min(_CHUNK, left))):
                hasher.update(chunk)
                left -= len(chunk)
    except OSError as error:
        raise ReadError("GP111", f"{file} cannot be read: {error.strerror}") from error
    return hasher.hexdigest()


def summarize_certificate(certificate: Mapping[str, Any]) -> str:
    """Return a summary in a few lines of text."""
    sequences, reach = certificate["sequences"], certificate["reach"]
    most = max((run["tokens"] for run in sequences), default=0)
    rows = max((run["rows"] for run in sequences), default=0)
    beams = any(run["selects_rows"] for run in sequences)
    lines = [
        f"certificate holds: {len(certificate['files'])} files are unchanged since the proof ({_NO_SIGNATURE})",
        f"  whole models: {len(sequences)} sequences of up to {most} tokens, up to {rows} rows, rows "
        f"{'selected' if beams else 'not selected'}; largest difference {certificate['largest_difference']:.0e}",
    ]
    if (structure := certificate["structure"]) is not None:
        lines.append(
            f"  equal for every input: {structure['equal']} of {structure['operators']} operators; without padding "
            f"{structure['unpadded']}{''.join(f', given that {condition}' for condition in structure['assumed'])}"
        )
    if reach is not None:
        lines += [
            f"  {proof['subject']} equal for every batch, past and length: {proof['equal']}; without padding "
            f"{proof['unpadded']}; at sampled lengths {len(proof['sampled'])}"
            for proof in reach["proofs"]
        ]
        lines.append(f"  lengths of the graphs: {', '.join(map(str, reach['thresholds'])) or 'none'}")
    lines += [
        f"  shared with other models, compared up to the bytes that it had: {name}" for name in certificate["shared"]
    ]
    lines += [f"  not compared: {text}" for text in certificate["not_compared"]]
    lines += [f"  WARNING: {text}" for text in certificate["warnings"]]
    return "\n".join(lines)
