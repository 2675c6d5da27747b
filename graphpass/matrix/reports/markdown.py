"""Report on a run as Markdown and as annotations of GitHub Actions."""

from __future__ import annotations

import re
from pathlib import Path

from graphpass.printable import on_one_line, visible
from graphpass.reports.text import in_bytes

from ..cells import CellResult
from ..run import Run
from .plain import grid, new_findings, run_in_one_line, unused_lines
from .sarif import short_path

#: Bytes of a job's summary that GitHub takes.
_LIMIT = 1 << 20

#: Findings of a run that GitHub shows as annotations, with room for others.
_ANNOTATIONS = 50

#: Names that mean nothing else within a code span, and characters that mean something outside.
_PLAIN = re.compile(r"[\w.:/{}=,+@ -]+", re.ASCII)
_MARKUP = re.compile(r"[&<>\\`*_~|@\[\]]")

_MARKS = {"failed": "❌", "known": "☑️", "cancelled": "⚪", "converted": "✅", "up to date": "✅"}


def as_markdown(run: Run) -> str:
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
        words = problem.message.splitlines()[0]
        words += f" (at {problem.node})" if problem.node not in words else ""
        lines.append(_row([_code(finding.result.cell.id), problem.rule, _escaped(words)]))
    if run.unused:
        lines += ["", *(_escaped(line) for line in unused_lines(run))]
    return _limited(lines)


def as_annotations(run: Run, root: Path) -> str:
    """Return commands of GitHub Actions that mark new errors and warnings, one a line."""
    lines = []
    for finding in new_findings(run)[:_ANNOTATIONS]:
        problem, cell = finding.problem, finding.result.cell
        file = short_path(finding.result.file, root)
        title = _value(f"{problem.rule} {cell.id}")
        words = problem.message + (f"\nat {problem.node}" if problem.node not in problem.message else "")
        words += f"\nhint: {problem.hint}" if problem.hint else ""
        lines.append(f"::{problem.level} file={_value(file)},title={title}::{_data(words)}")
    return "\n".join(lines)


def _cell(run: Run, result: CellResult) -> str:
    state = run.state_of(result)
    words = [_MARKS[state], state]
    if state in {"converted", "up to date"} and result.outcome:
        words.append(in_bytes(sum(file["bytes"] for file in result.outcome["files"])))
    if result.changed and state != "up to date":
        words.append("changed")
    return " ".join(words)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    return f"`{text}`" if _PLAIN.fullmatch(text) else f"<code>{_escaped(text)}</code>"


def _escaped(text: str) -> str:
    """Escape tags, marks and mentions as entities, which mean nothing to Markdown."""
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", on_one_line(text))


def _limited(lines: list[str]) -> str:
    kept: list[str] = []
    size = 0
    for line in lines:
        size += len(line.encode()) + 1
        if size > _LIMIT - 200:
            return "\n".join([*kept, "", "More is left out: a summary holds 1 MiB.", ""])
        kept.append(line)
    return "\n".join([*kept, ""])


def _data(text: str) -> str:
    return visible(text.replace("\r\n", "\n")).replace("%", "%25").replace("\n", "%0A")


def _value(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
