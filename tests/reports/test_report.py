"""The base class of reports prints their text."""

from graphpass.reports.report import Report


class Lines(Report):
    def text(self, *, verbose=False):
        return "all lines" if verbose else "some lines"

    def to_json(self):
        return {"lines": 2}


def test_a_report_prints_its_text():
    assert str(Lines()) == "some lines"
    assert f"{Lines()}" == "some lines"
