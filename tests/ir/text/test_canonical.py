"""One text for graphs that differ in names and order."""

import pytest

from graphpass.errors import UsageError
from graphpass.ir.text.canonical import canonical
from graphpass.ir.text.parser import parse_text

GRAPH = """
%x = Parameter : f32[4]
%b = Parameter : f32[4]
%one = Relu(%x) : f32[4]
%two = Add(%one, %b)
Result(%two) {name=y}
Result(%one) {name=a}
"""


def lines(text, **options):
    return [str(statement) for statement in canonical(parse_text(text), **options)]


def test_values_are_numbered_in_the_order_of_outputs():
    assert lines(GRAPH) == [
        "%b = Parameter",
        "%x = Parameter",
        "%0 = Relu(%x)",
        "Result(%0) {name=a}",
        "%1 = Add(%0, %b)",
        "Result(%1) {name=y}",
    ]
    assert lines(GRAPH, types=True)[2] == "%0 = Relu(%x) : f32[4]"


@pytest.mark.parametrize(
    "text",
    [
        GRAPH.replace("%one", "%other"),
        "\n".join(reversed(GRAPH.splitlines())),
        GRAPH.replace("Result(%two)", "// a remark\n%dead = Tanh(%two)\nResult(%two)"),
    ],
    ids=["names", "order", "dead"],
)
def test_names_order_and_dead_statements_make_no_difference(text):
    assert lines(text) == lines(GRAPH)


@pytest.mark.parametrize(("old", "new"), [("(%one, %b)", "(%b, %one)"), ("=a}", "=c}"), ("Relu", "Tanh")])
def test_operands_names_of_outputs_and_operators_do(old, new):
    assert lines(GRAPH.replace(old, new)) != lines(GRAPH)


def test_a_value_without_a_statement_is_refused():
    with pytest.raises(UsageError, match=r"GP270: Result\(%z\) .*: %z has no statement"):
        lines("Result(%z) {name=y}")
