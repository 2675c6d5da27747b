"""Report on a conversion as a page: models before and after, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from graphpass.reports.diff import diff_models
from graphpass.reports.difference import page_parts
from graphpass.reports.outcome import ModelReport, Outcome, as_text
from graphpass.reports.page import framed


def as_page(outcome: Outcome) -> str:
    """Return a self-contained HTML page.

    Args:
        outcome: The outcome of a job that wrote a result.

    Raises:
        ReadError: GP105, GP110, as `graphpass.reports.diff.diff_models`.
    """
    title = f"{outcome.input} \u2192 {outcome.target or outcome.graphs[0].name}"
    parts = [f"<details><summary>report</summary><pre>{escape(as_text(outcome))}</pre></details>"]
    return framed("conversion", title, [*parts, *(part for report in outcome.models for part in _model(report))])


def _model(report: ModelReport) -> Iterator[str]:
    if report.name:
        yield f"<h2>{escape(report.name)}</h2>"
    yield from page_parts(["before", "after"], report.before, report.after, diff_models(report.before, report.after))
