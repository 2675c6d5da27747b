"""Statements as text that is read back."""

import numpy
import pytest

from graphpass.ir.text.parser import parse_text
from graphpass.ir.text.statements import Literal, Statement, TensorType, attribute


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        (Statement(("y",), "Relu", ("x",)), "%y = Relu(%x)"),
        (Statement((), "Assign", ("x",), {"variable": "a b"}), 'Assign(%x) {variable="a b"}'),
        (Statement(("a", "b"), "Split", ("x", None)), "%a, %b = Split(%x, _)"),
        (Statement(("a b",), "Relu", ('q"',)), r'%"a b" = Relu(%"q\"")'),
        (Statement(("c",), "Constant", types=(TensorType("i4", (2, "n", None)),), digest="ab12"),
         "%c = Constant #ab12 : i4[2, n, ?]"),
        (Statement(("c",), "true", types=(TensorType("f32", None),)), '%c = "true" : f32[...]'),
    ],
)  # fmt: skip
def test_statements_are_printed_and_read(statement, text):
    assert str(statement) == text
    assert parse_text(text) == (statement,)


@pytest.mark.parametrize(
    ("values", "element_type", "text"),
    [
        (numpy.array(0.1, numpy.float32), "f32", "0.1"),
        (numpy.array(0.1), "f64", "0.1:f64"),
        (numpy.array([1, -2]), "i64", "[1, -2]"),
        (numpy.array([[1]], numpy.int32), "i32", "[[1]]:i32"),
        (numpy.array([True, False]), "boolean", "[true, false]"),
        (numpy.array(-numpy.inf, numpy.float32), "f32", "-inf"),
        (numpy.zeros(0, numpy.int64), "i64", "[]"),
    ],
)
def test_the_usual_type_of_a_literal_is_left_out(values, element_type, text):
    literal = Literal(values, element_type)
    assert str(literal) == text
    (statement,) = parse_text(f"%y = Relu({text})")
    assert statement.operands[0].values.tolist() == values.tolist()
    assert statement.operands[0].element_type == element_type


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (numpy.bool_(False), "false"),
        (0.1, "0.1"),
        (1e-6, "1e-06"),
        ((1, [2.5, "a"]), "[1, [2.5, a]]"),
        ("nan", '"nan"'),
        ("", '""'),
        ("a\nb", r'"a\nb"'),
        (numpy.array([1], numpy.int32), "[1]:i32"),
    ],
)
def test_attributes_are_words_if_they_can(value, text):
    assert attribute(value) == text


def test_remarks_stand_before_the_statement():
    assert str(Statement(("y",), "Relu", ("x",), remarks=("one", "two"))) == "// one\n// two\n%y = Relu(%x)"
