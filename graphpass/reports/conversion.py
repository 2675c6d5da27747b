"""Report on a conversion as an HTML page, with both models side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from graphpass.reports.diff import diff_models
from graphpass.reports.difference import page_parts
from graphpass.reports.outcome import ModelReport, Outcome
from graphpass.reports.page import framed


def models_as_parts(reports: Iterable[ModelReport]) -> list[str]:
    """Return the parts of a page about models before and after their pipelines.

    Raises:
        ReadError: GP105, GP110, as `graphpass.reports.diff.diff_models`.
    """
    return [part for report in reports for part in _model(report)]


def as_page(outcome: Outcome, models: Iterable[str]) -> str:
    """Return a self-contained HTML page.

    Args:
        outcome: The outcome of the job.
        models: The parts from `models_as_parts`.
    """
    title = f"{outcome.input} \u2192 {outcome.target or outcome.graphs[0].name}"
    report = f"<details><summary>report</summary><pre>{escape(outcome.text(verbose=True))}</pre></details>"
    return framed("conversion", title, [report, *models])


def _model(report: ModelReport) -> Iterator[str]:
    if report.name:
        yield f"<h2>{escape(report.name)}</h2>"
    yield from page_parts(["before", "after"], report.before, report.after, diff_models(report.before, report.after))
