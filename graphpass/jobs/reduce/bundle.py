"""Bundles: a failing case with versions, command and log in one zip file."""

from __future__ import annotations

import io
import json
import platform
import shlex
import traceback
import zipfile
from pathlib import Path

from graphpass.artifacts.manifest import versions
from graphpass.engine.instrumentation import PrintChanged
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import format_passes
from graphpass.errors import GraphpassError, ReadError, UsageError
from graphpass.jobs.reduce.failing import Failing
from graphpass.jobs.reduce.oracle import Oracle
from graphpass.storage.documents import regular
from graphpass.storage.staging import staging

#: The graph inside a bundle.
CASE = "case.graph"

_HINT = "name a file that graphpass reduce or bundle wrote; a model needs the passes that fail on it, -p"


def write_bundle(case: Failing, output: Path) -> None:
    """Write a case, versions, command and log to a zip file.

    Args:
        case: A failing case.
        output: The zip file; an older one is replaced.

    Raises:
        UsageError: GP275, the case does not fail.
        WriteError: GP501, the file system's error; an older file is untouched.
    """
    oracle = Oracle()
    if (failure := oracle.failure(case)) is None:
        reason = f"{format_passes(case.passes)} does not fail with {case.keeps}: {oracle.seen}"
        raise UsageError("GP275", reason, "a bundle requires a failure that occurs with the installed versions")
    system = {"python": platform.python_version(), "platform": platform.platform()}
    command = f"graphpass bundle --replay {shlex.quote(output.name)}"
    contents = {
        CASE: str(case),
        "README.txt": f"{format_passes(case.passes)} fails with {case.keeps}. Weights are noise. To reproduce, run\n\n"
        f"    {command}\n",
        "versions.json": json.dumps(versions() | system, indent=2) + "\n",
        "log.txt": _log(case, failure),
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in contents.items():
            # Omit times, so that equal cases give equal bytes.
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o644 << 16
            file.writestr(info, text, zipfile.ZIP_DEFLATED)
    with staging(output.absolute().parent) as folder:
        (folder / output.name).write_bytes(packed.getvalue())


def read_case(path: Path) -> Failing:
    """Read a file written by `graphpass reduce`, or a bundle.

    Returns:
        The case.

    Raises:
        ReadError: GP101, the file does not exist; GP120, the file is not a bundle.
        UsageError: GP270, the text is not a graph.
    """
    try:
        if not zipfile.is_zipfile(regular(path)):
            return Failing.parse(path.read_text("utf-8"))
        with zipfile.ZipFile(path) as file:
            return Failing.parse(file.read(CASE).decode())
    except OSError as error:
        raise ReadError("GP101", f"cannot read {path}: {error.strerror}", _HINT) from error
    except (KeyError, UnicodeDecodeError, zipfile.BadZipFile) as error:
        raise ReadError("GP120", f"{path} is neither a bundle nor a case", _HINT) from error


def replay_bundle(path: Path) -> str | None:
    """Return the failure of a case or bundle; ``None`` if it no longer occurs.

    Raises:
        ReadError, UsageError: As `read_case`.
    """
    return Oracle().failure(read_case(path))


def _log(case: Failing, failure: str) -> str:
    lines: list[str] = []
    try:
        result = PassManager(case.passes, [PrintChanged(lines.append)]).run(case.model())
        lines += [f"{record.step.name}: {record.outcome}" for record in result.records]
    except GraphpassError:
        lines.append(traceback.format_exc())
    lines.append(f"fails: {failure}")
    return "\n".join(lines) + "\n"
