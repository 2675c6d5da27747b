"""Positions of a cell: new items are reported at once, counts once per interval."""

import pytest

from graphpass.matrix.progress import Reporter
from graphpass.progress import Stage


def reporter(**options):
    sent = []
    return Reporter(sent.append, **options), sent


def test_stages_are_reported_with_the_outermost_one():
    report, sent = reporter()
    outer, inner = Stage("converting"), Stage("verifying")
    report.began(outer)
    report.began(inner)
    report.ended(inner)
    report.ended(outer)
    assert [(at.stage.text, at.whole.text) for at in sent] == [
        ("converting", "converting"),
        ("verifying", "converting"),
        ("converting", "converting"),
    ]


@pytest.mark.parametrize(("interval", "reports"), [(0.0, 3), (100.0, 1)])
def test_counts_are_reported_once_per_interval(interval, reports):
    report, sent = reporter(interval=interval)
    stage = Stage("verifying", total=3)
    report.began(stage)
    for stage.done in (1, 2):
        report.moved(stage)
    assert [at.stage.done for at in sent] == [0, 1, 2][:reports]


def test_a_new_item_is_reported_at_once_and_outer_stages_are_not():
    report, sent = reporter(interval=100.0)
    outer, inner = Stage("converting"), Stage("verifying")
    report.began(outer)
    report.began(inner)
    inner.at = "prompt 2"
    report.moved(inner)
    outer.at = "another"
    report.moved(outer)
    assert [at.stage.at for at in sent] == ["", "", "prompt 2"]


def test_a_reader_that_ended_is_no_error():
    def gone(at):
        raise BrokenPipeError

    Reporter(gone).began(Stage("converting"))
