"""Outcomes are printed as text or JSON, or as the paths of the model files alone."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphpass.cli.results import print_outcome
from graphpass.reports.outcome import Outcome

OUTCOME = Outcome(Path("in"), Path("out"), (Path("out/a.xml"), Path("out/b.xml")), (), "cpu", up_to_date=True)


def printed(form, *, quiet=False, verbose=False):
    lines = []
    console = SimpleNamespace(
        quiet=quiet,
        verbose=verbose,
        result=lines.append,
        report=lambda form, text, entry: lines.append(text() if form == "text" else json.dumps(entry())),
    )
    print_outcome(console, OUTCOME, form)
    return lines


def test_quiet_text_is_the_model_files():
    assert printed("text", quiet=True) == ["out/a.xml", "out/b.xml"]


@pytest.mark.parametrize("quiet", [False, True])
def test_json_is_whole(quiet):
    (line,) = printed("json", quiet=quiet)
    assert json.loads(line) == json.loads(json.dumps(OUTCOME.to_json()))


@pytest.mark.parametrize("verbose", [False, True])
def test_text_is_the_outcome(verbose):
    assert printed("text", verbose=verbose) == [OUTCOME.text(verbose=verbose)]
