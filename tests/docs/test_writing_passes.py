"""docs/writing-passes.md: its pass does what its cases state."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

from graphpass import PassManager
from graphpass.testing import assert_text, parse_model, read_cases

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "writing-passes.md").read_text("utf-8")

BLOCKS = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "read_cases" not in block]


@pytest.fixture(scope="module")
def names():
    """Names that the page's Python defines."""
    defined = {}
    for block in BLOCKS:
        exec(block, defined)
    return defined


@pytest.fixture
def cases(tmp_path):
    (found,) = re.findall(r"^(    // RUN: merge-transposes$.*?)\n\n\S", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "page.graph").write_text(dedent(found))
    return read_cases(tmp_path)


def test_the_cases_of_the_page_hold(names, cases):
    assert [case.dialect for case in cases] == ["onnx", "openvino"] * 2
    for case in cases:
        model = parse_model(case.before, case.dialect)
        assert_text(PassManager([names["MergeTransposes"]()]).run(model).model, case.after or case.before)


def test_the_pass_of_the_page_is_short():
    code = re.sub(r'""".*?"""', "", BLOCKS[0], flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip() and "import" not in line]) <= 15


def test_statements_of_the_text_form_are_read():
    table = PAGE[PAGE.index("## Text form") :].partition("\n\n## ")[0]
    statements = dict(re.findall(r"^\| `((%[xw]|%a, %b) = [^`]*)`", table, re.MULTILINE))
    assert len(statements) == 3
    results = [f"Result(%{name}) {{name={name}}}" for name in "ab"]
    assert len(parse_model("\n".join([*statements, *results])).outputs) == 2
