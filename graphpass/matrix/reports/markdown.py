"""Report on a run as Markdown, and as annotations of GitHub Actions."""

from __future__ import annotations

import re
from pathlib import Path

from graphpass.printable import on_one_line, visible
from graphpass.reports.text import in_bytes

from ..cells import CellResult
from ..run import MatrixResults
from .plain import grid, new_findings, run_in_one_line, unused_lines
from .sarif import short_path

#: Largest job summary that GitHub accepts, in bytes.
_LIMIT = 1 << 20

#: Largest number of annotations, below GitHub's limit.
_ANNOTATIONS = 50

#: Text that needs no escapes inside a code span; characters to escape elsewhere.
_PLAIN = re.compile(r"[\w.:/{}=,+@ -]+", re.ASCII)
_MARKUP = re.compile(r"[&<>\\`*_~|@\[\]]")

_MARKS = {"failed": "❌", "known": "☑️", "cancelled": "⚪", "converted": "✅", "up to date": "✅"}


def as_markdown(run: MatrixResults) -> str:
    """Return a table of models and targets, and the findings."""
    labels, rows = grid(run)
    lines = [
        f"### graphpass: {run_in_one_line(run)}",
        "",
        _row(["model", *map(_escaped, labels)]),
        _row(["---"] * (len(labels) + 1)),
    ]
    for model, results in rows.items():
        lines.append(_row([_code(model), *("" if result is None else _cell(run, result) for result in results)]))
    shown = new_findings(run)
    if shown:
        lines += ["", "| cell | rule | finding |", "|---|---|---|"]
    for finding in shown:
        problem = finding.problem
        message = problem.message.splitlines()[0]
        message += f" (at {problem.node})" if problem.node not in message else ""
        lines.append(_row([_code(finding.result.cell.id), problem.rule, _escaped(message)]))
    if run.unused:
        lines += ["", *(_escaped(line) for line in unused_lines(run))]
    return _limited(lines)


def as_annotations(run: MatrixResults, root: Path) -> str:
    """Return GitHub Actions commands that annotate new errors and warnings, one in each line.

    Args:
        run: The run.
        root: The folder of the sources; paths are relative to it.
    """
    lines = []
    for finding in new_findings(run)[:_ANNOTATIONS]:
        problem, cell = finding.problem, finding.result.cell
        file = short_path(finding.result.file, root)
        title = _value(f"{problem.rule} {cell.id}")
        message = problem.message + (f"\nat {problem.node}" if problem.node not in problem.message else "")
        message += f"\nhint: {problem.hint}" if problem.hint else ""
        lines.append(f"::{problem.level} file={_value(file)},title={title}::{_data(message)}")
    return "\n".join(lines)


def _cell(run: MatrixResults, result: CellResult) -> str:
    state = run.state_of(result)
    parts = [_MARKS[state], state]
    if state in {"converted", "up to date"} and result.outcome:
        parts.append(in_bytes(sum(file["bytes"] for file in result.outcome["files"])))
    if result.changed and state != "up to date":
        parts.append("changed")
    return " ".join(parts)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    return f"`{text}`" if _PLAIN.fullmatch(text) else f"<code>{_escaped(text)}</code>"


def _escaped(text: str) -> str:
    """Return text with tags, markup and mentions escaped as entities."""
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", on_one_line(text))


def _limited(lines: list[str]) -> str:
    kept: list[str] = []
    size = 0
    for line in lines:
        size += len(line.encode()) + 1
        if size > _LIMIT - 200:
            return "\n".join([*kept, "", "The rest is omitted: GitHub limits summaries to 1 MiB.", ""])
        kept.append(line)
    return "\n".join([*kept, ""])


def _data(text: str) -> str:
    return visible(text.replace("\r\n", "\n")).replace("%", "%25").replace("\n", "%0A")


def _value(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
