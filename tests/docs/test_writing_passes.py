"""docs/writing-passes.md: its cases hold."""

import re
from pathlib import Path
from textwrap import dedent

from graphpass.testing import read_cases

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "writing-passes.md").read_text("utf-8")


def test_the_cases_of_the_page_hold(tmp_path):
    (found,) = re.findall(r"^(    // RUN: lower-boolean-gathers$.*?)\n\n\S", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.graph").write_text(dedent(found))
    cases = read_cases(tmp_path)
    assert len(cases) == 2
    for case in cases:
        case.check()
