"""The text of graphs as statements."""

import pytest

from graphpass.errors import UsageError
from graphpass.ir.text.parser import parse_text


def test_constants_round_trip():
    line = '%y = Add([1e-06, -inf, 0.31622776], [[true]]) {a=[1]:i32, b=[1, 2], c="a b", d=0.1, e=false}'
    (statement,) = parse_text(line)
    assert str(statement) == line
    assert statement.attributes["a"].element_type == "i32"


def test_blank_lines_and_comments_are_no_statements():
    statements = parse_text("\n// a comment\n%y = Relu(%x) // another\n\nResult(%y) {name=y}\n")
    assert [statement.kind for statement in statements] == ["Relu", "Result"]


def test_types_may_be_open():
    (statement,) = parse_text("%a, %b = Split(%x, _) : f32[?, n, 2], i64[...]")
    assert statement.operands == ("x", None)
    assert [each.shape for each in statement.types] == [(None, "n", 2), None]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%y = Relu(%x", "expected ,, got the end"),
        ("%y = Relu(%x) %z", "expected the end, got %z"),
        ("%y Relu(%x)", "expected =, got Relu"),
        ("%y = Relu(1.0:f7)", "f7 is not an element type"),
        ("%y = Relu(%x) {axis 1}", "expected =, got 1"),
        ("%y = Relu(%x) : f32[", "got the end"),
        ("%y = Relu(word)", "expected number or true or false, got word"),
        ("%y = Relu(%x) ; 1", "unexpected character ';'"),
    ],
)
def test_faults_name_the_line(line, words):
    with pytest.raises(UsageError) as raised:
        parse_text(f"%x = Parameter : f32[4]\n  {line}")
    assert raised.value.id == "GP270"
    assert raised.value.message.startswith(f"line 2 of the graph, {line!r}: ")
    assert words in raised.value.message
