"""Certify what was proven of a result, and check that its files are the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpass.artifacts.manifest import manifest_of
from graphpass.errors import ReadError, UsageError, VerificationError
from graphpass.storage.digests import digests_of_files

if TYPE_CHECKING:
    from graphpass.verify import Comparison

_HINT = "convert the model again"
_WITH_PROOF = f"{_HINT}, without --no-verify"


def certify(comparison: Comparison) -> dict[str, Any]:
    """Return what a comparison proved, without what may differ from run to run.

    The largest difference keeps one digit: runtimes add up in an order of their own.
    """
    told = comparison.to_json()
    largest = comparison.max_abs_difference
    return {
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
        "reach": told["reach"],
        "layers": {
            "run": [part.name for part in comparison.parts if part.like is None],
            "inferred": {part.name: part.like for part in comparison.parts if part.like is not None},
        },
        "not_compared": list(comparison.skipped),
        "warnings": list(comparison.warnings),
    }


def check_certificate(result: Path) -> dict[str, Any]:
    """Return the certificate of a result, if its files are those that were proven.

    Args:
        result: A folder that `convert` or `run` wrote, or a model file of `run`.

    Raises:
        UsageError: GP269, there is no certificate, as after ``--no-verify``.
        ReadError: GP118, it cannot be read.
        VerificationError: GP604, a file is missing or holds something else.
    """
    manifest = manifest_of(result, is_file=result.is_file())
    try:
        noted = json.loads(manifest.read_bytes())
        certificate, output = noted["certificate"], noted["output"]
        expected: dict[str, str] = certificate["files"]
        sizes = {name: int(output[name]["bytes"]) for name in expected}
    except FileNotFoundError as error:
        raise UsageError("GP269", f"there is no {manifest}", _WITH_PROOF) from error
    except KeyError as error:
        raise UsageError("GP269", f"{manifest} holds no certificate", _WITH_PROOF) from error
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ReadError("GP118", f"{manifest} is damaged, or another program's") from error
    folder = manifest.parent
    for name, size in sizes.items():
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ReadError("GP118", f"{manifest} is damaged, or another program's")
        if not file.is_file() or file.stat().st_size < size:
            raise VerificationError("GP604", f"{file} is missing or shorter than it was when it was proven", _HINT)
    found = digests_of_files(folder, sizes)
    if changed := [name for name, digest in expected.items() if found[name] != digest]:
        names = ", ".join(str(folder / name) for name in changed)
        raise VerificationError("GP604", f"changed since the result was proven: {names}", _HINT)
    known: dict[str, Any] = certificate
    return known | {"versions": noted["versions"]}


def summarize(certificate: Mapping[str, Any]) -> str:
    """Return a few lines for people."""
    sequences, reach = certificate["sequences"], certificate["reach"]
    most = max((run["tokens"] for run in sequences), default=0)
    rows = max((run["rows"] for run in sequences), default=0)
    beams = any(run["selects_rows"] for run in sequences)
    lines = [
        f"certificate holds: {len(certificate['files'])} files are those that were proven",
        f"  whole models: {len(sequences)} sequences of up to {most} tokens, up to {rows} rows, rows "
        f"{'selected' if beams else 'not selected'}; largest difference {certificate['largest_difference']:.0e}",
    ]
    if reach is not None and reach["steps"]:
        turns = ", ".join(map(str, reach["turns"])) or "none"
        lines.append(
            f"  masks of {reach['masks']} and angles of {reach['angles']} attention: up to "
            f"{max(map(sum, reach['steps']))} positions; lengths of the graphs: {turns}"
        )
    lines += [f"  not compared: {text}" for text in certificate["not_compared"]]
    lines += [f"  WARNING: {text}" for text in certificate["warnings"]]
    return "\n".join(lines)
