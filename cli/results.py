"""Print the outcome of commands that write a result."""

from __future__ import annotations

from graphpass.reports.outcome import Outcome

from .console import Console


def print_outcome(console: Console, outcome: Outcome, form: str) -> None:
    """Print the outcome of a job; with ``--quiet`` only the paths of its model files.

    Args:
        console: Prints the outcome, with details if it is verbose.
        outcome: The report on the job.
        form: ``text`` or ``json``; ``--quiet`` applies to ``text`` only.
    """
    if console.quiet and form == "text":
        for graph in outcome.graphs:
            console.result(str(graph))
    else:
        console.report(form, lambda: outcome.text(verbose=console.verbose), outcome.to_json)
