"""Assertions that fail with reasons."""

import pytest

import graphpass
from graphpass.testing import assert_fused, assert_same, assert_text, parse_model, tiny_model

pytest_plugins = ["graphpass.testing.fixtures"]

GRAPH = """
%x = Parameter : f32[n, 4]
%sum = Add(%x, 1.0)
%y = Relu(%sum)
Result(%y) {name=y}
"""


def test_text_is_compared_without_names_and_order(dialect):
    assert_text(
        parse_model(GRAPH, dialect), GRAPH.replace("%sum", "%other").replace("Relu(%other)", "Relu(%other) : f32[n, 4]")
    )


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("Relu(%sum)", "Tanh(%sum)"),
        ("1.0", "2.0"),
        ("f32[n, 4]", "f32[n, 5]"),
        ("Relu(%sum)", "Relu(%sum) : f16[n, 4]"),
    ],
)
def test_another_text_is_a_diff(line, other):
    with pytest.raises(AssertionError, match=r"(?s)--- expected.*\n-.*\n\+"):
        assert_text(parse_model(GRAPH), GRAPH.replace(line, other))


def test_other_counts_are_named():
    with pytest.raises(AssertionError, match="Relu: 1 instead of 0, Tanh: 0 instead of 2; the model has Add 1, "):
        assert_fused(parse_model(GRAPH), Relu=0, Tanh=2, Add=1)


def test_other_numbers_are_reported():
    model = tiny_model("llama", layers=1)
    text = graphpass.text(model)
    other = parse_model(text.replace("2.0)", "2.5)", 1))
    assert_same(parse_model(text), parse_model(text), steps=1, proven=True)
    with pytest.raises(AssertionError, match="DIFFERENT: "):
        assert_same(parse_model(text), other, steps=1)
