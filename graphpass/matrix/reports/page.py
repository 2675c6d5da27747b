"""Report on a run as an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from graphpass.reports.page import facts_element, framed, picture_element
from graphpass.reports.text import in_bytes

from ..cells import Cell, CellResult
from ..run import MatrixResults
from .origin import Origin
from .plain import grid, run_in_one_line

#: Style classes of states: the kinds of caches, whose colors they share.
_COLORS = {"failed": "unknown", "known": "linear", "cancelled": "other", "converted": "cross", "up to date": "kv"}


#: Input that filters cells by name and state; handled by `page.js`.
_FILTER = (
    '<p class=filter><input type=search aria-label="filter cells" placeholder="filter by model, target or state">'
    " <span class=found></span></p>"
)


def as_page(run: MatrixResults, pictures: Callable[[Cell], Sequence[Mapping[str, Any]]], origin: Origin) -> str:
    """Return a self-contained page.

    Args:
        run: The run.
        pictures: Returns the pictures of a cell's result, one for each model, by `graphpass.reports.picture`.
        origin: Version, time and commit of the report.
    """
    numbers = {result.cell.id: number for number, result in enumerate(run.results)}
    facts = {"graphpass": origin.version, "date": origin.time, "commit": origin.commit}
    shown = facts_element({name: value for name, value in facts.items() if value})
    parts = [f"<p>{escape(run_in_one_line(run))}</p>", shown, _FILTER, _matrix(run, numbers)]
    for result in run.results:
        drawn = [] if result.state in {"failed", "cancelled"} else pictures(result.cell)
        parts.append(_section(run, result, numbers[result.cell.id], drawn))
    return framed("graphpass ci", "Models and targets", parts)


def _matrix(run: MatrixResults, numbers: Mapping[str, int]) -> str:
    labels, results = grid(run)
    head = "".join(f"<th>{escape(label)}</th>" for label in labels)
    rows = []
    for model, row in results.items():
        cells = zip(labels, row, strict=True)
        linked = "".join(
            _entry(label, "" if result is None else _link(run, result, numbers[result.cell.id]))
            for label, result in cells
        )
        rows.append(f"<tr><th>{escape(model)}</th>{linked}</tr>")
    table = f'<table class="rows matrix"><tr class=head-row><th></th>{head}</tr>{"".join(rows)}</table>'
    return f"<div class=wide>{table}</div>"


def _entry(label: str, content: str) -> str:
    """Return a table cell; narrow screens show it below its label."""
    return f'<td data-label="{escape(label)}">{content}</td>' if content else "<td></td>"


def _link(run: MatrixResults, result: CellResult, number: int) -> str:
    state = run.state_of(result)
    return f'<a href="#cell-{number}" data-cell="{_searched(result, state)}">{_chip(state)}</a>'


def _searched(result: CellResult, state: str) -> str:
    return escape(f"{result.cell.id} {state}".lower())


def _chip(state: str) -> str:
    return f'<span class="chip {_COLORS[state]}">{state}</span>'


def _section(run: MatrixResults, result: CellResult, number: int, pictures: Sequence[Mapping[str, Any]]) -> str:
    state, outcome = run.state_of(result), result.outcome
    facts = {"input": result.file, "output": result.cell.output, "time": f"{result.seconds:.2f} s"}
    if result.memory is not None:
        facts["memory"] = in_bytes(result.memory)
    parts = [facts_element(facts), _problems(result)]
    if outcome:
        parts += [_model(model) for model in outcome["models"]]
        parts += [_contract(outcome["contract"]), _proof(outcome["verification"]), _files(outcome["files"])]
    parts += [_drawn(picture) for picture in pictures]
    if result.changes:
        parts.append(_list("Changes to the published result", result.changes))
    opened = " open" if state == "failed" else ""
    summary = f"<summary><b>{escape(result.cell.id)}</b> {_chip(state)}</summary>"
    searched = _searched(result, state)
    return f'<details id="cell-{number}" data-cell="{searched}"{opened}>{summary}{"".join(parts)}</details>'


def _problems(result: CellResult) -> str:
    rows = [
        (problem.level, problem.rule, problem.node or problem.subject, problem.message, problem.hint)
        for problem in result.problems
    ]
    return _table("Findings", ("level", "rule", "at", "finding", "next"), rows, is_open=True)


def _model(model: Mapping[str, Any]) -> str:
    title = f"Pipeline of the {model['name']}" if model["name"] else "Pipeline"
    before, after = model["before"], model["after"]
    sides = [
        ("", "before", "after"),
        ("caches and attention", before["summary"], after["summary"]),
        ("operators", f"{before['operators']:,}", f"{after['operators']:,}"),
        ("caches, per token", _size(before["bytes_per_token"]), _size(after["bytes_per_token"])),
    ]
    passes = [
        (entry["pass"], f"{entry['seconds']:.3f} s", _did(entry), "; ".join(entry["notes"]))
        for entry in model["passes"]
    ]
    compared = _table("Before and after", sides[0], sides[1:], is_open=True)
    return f"{compared}{_table(title, ('pass', 'time', 'did', 'notes'), passes)}"


def _drawn(picture: Mapping[str, Any]) -> str:
    return f"<details><summary>Operators before and after</summary>{picture_element(picture)}</details>"


def _did(entry: Mapping[str, Any]) -> str:
    if entry["skipped"] is not None:
        return f"skipped: {entry['skipped']}"
    counted = ", ".join(f"{count} {name}" for name, count in entry["did"].items())
    return counted or ("changed" if entry["changed"] else "unchanged")


def _contract(contract: Mapping[str, Any] | None) -> str:
    if contract is None:
        return ""
    tried = contract["confirmation"]
    verdict = "holds" if contract["holds"] else "does not hold"
    if tried is not None:
        verdict += f"; {tried['outcome']}: {tried['tried']}"
    rows = [
        (finding["subject"], finding["name"], finding["verdict"], finding["node"] or "", finding["reason"] or "")
        for finding in contract["findings"]
    ]
    table = _table("Contract", ("part", "name", "verdict", "node", "reason"), rows)
    return f"<p>Contract with {escape(contract['target'])} {escape(verdict)}</p>{table}"


def _proof(verification: Mapping[str, Any] | None) -> str:
    if verification is None:
        return "<p>Not verified.</p>"
    steps, largest = verification["steps_run"], verification["max_abs_difference"]
    verdict = "the same" if verification["passed"] else "DIFFERENT"
    rows = [(run["description"], str(run["steps"])) for run in verification["sequences"]]
    head = f"Proof: {verdict}, {steps} greedy steps, largest difference {float(largest):.3g}"
    return _table(head, ("sequence", "greedy steps"), rows)


def _files(files: Sequence[Mapping[str, Any]]) -> str:
    total = in_bytes(sum(file["bytes"] for file in files))
    return _table(f"Files, {total}", ("file", "size"), [(file["name"], in_bytes(file["bytes"])) for file in files])


def _size(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,} bytes"


def _list(title: str, items: Iterable[str]) -> str:
    return (
        f"<details><summary>{title}</summary><ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul></details>"
    )


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, is_open: bool = False) -> str:
    if not rows:
        return ""
    heading = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(map(_entry, head, map(escape, row)))}</tr>" for row in rows)
    summary = f"<summary>{escape(title)}</summary>"
    opened = " open" if is_open else ""
    table = f"<table class=rows><tr class=head-row>{heading}</tr>{body}</table>"
    return f"<details{opened}>{summary}{table}</details>"
