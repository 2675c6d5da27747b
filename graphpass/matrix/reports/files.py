"""Files with reports on a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from graphpass.errors import WriteError
from graphpass.reports.header import with_header
from graphpass.storage.staging import write_whole

from ..cell_memory import pictures_of
from ..run import MatrixResults
from .junit import as_junit
from .markdown import as_markdown
from .origin import origin_of
from .page import as_page
from .plain import as_json
from .sarif import as_sarif

#: Functions that return the text of a report, by format; arguments are the run and the folder of the sources.
REPORTS: dict[str, Callable[[MatrixResults, Path], str]] = {
    "json": lambda run, _: dumped(with_header(as_json(run))),
    "junit": lambda run, _: as_junit(run),
    "sarif": lambda run, root: dumped(as_sarif(run, root)),
    "html": lambda run, root: as_page(run, pictures_of, origin_of(root)),
    "markdown": lambda run, _: as_markdown(run),
}


def write_reports(run: MatrixResults, files: Mapping[str, Path], root: Path) -> None:
    """Write reports, each file atomically.

    Args:
        run: The run.
        files: The files, by format of the report.
        root: The folder of the sources.

    Raises:
        WriteError: GP501, the file system's error.
    """
    for name, file in files.items():
        write_whole(file, REPORTS[name](run, root))


def append(file: Path, text: str) -> None:
    """Append text to a file.

    Args:
        file: The file; it is created if missing.
        text: The text, which is not followed by a newline.

    Raises:
        WriteError: GP501, the file system's error.
    """
    try:
        with file.open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
    except OSError as error:
        raise WriteError("GP501", f"cannot write to {file}: {error.strerror}") from error


def dumped(content: object) -> str:
    """Return an object as indented JSON."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
