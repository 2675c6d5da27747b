"""Lines of entries of a TOML file."""

import pytest

from graphpass.matrix.toml_lines import line_of

TEXT = """\
# A comment
[defaults]
budgets = {operators = 1000, bytes = "1.5 MB"}

[[models]]
path = "one"
targets = [
  "cpu",
  "gpu{cache=reorder}",
  {target = "npu", steps = 5},
]

[[models]]
pipelines = [{name = "fused", pipeline = "@fused.toml"}]
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("models", 0), 5),
        (("models", 0, "targets", 1), 9),
        (("models", 0, "targets", 2, "steps"), 10),
        (("models", 1, "pipelines", 0, "pipeline"), 14),
        (("defaults", "budgets", "bytes"), 3),
        (("nothing",), 14),
    ],
)
def test_entries_are_located_by_line(path, line):
    assert line_of(TEXT, path) == line


def test_an_empty_document_has_one_line():
    assert line_of("", ("models",)) == 1
