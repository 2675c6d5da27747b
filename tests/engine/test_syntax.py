"""The syntax of pipelines, before names and values are checked."""

import pytest

from graphpass.engine.syntax import OptionValue, PassCall, Setting, parse_steps, quote
from graphpass.errors import UsageError


def word(text):
    return OptionValue("word", text)


NESTED = OptionValue("list", "[1, [b]]", (word("1"), OptionValue("list", "[b]", (word("b"),))))


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (" \n", []),
        ("a , b{}", [PassCall("a"), PassCall("b")]),
        ("a{x=1}", [PassCall("a", (Setting("x", word("1")),))]),
        (r'a{x="b, \"c\""}', [PassCall("a", (Setting("x", OptionValue("string", 'b, "c"')),))]),
        ("a{x=[]}", [PassCall("a", (Setting("x", OptionValue("list", "[]")),))]),
        ("a{x=[1, [b]],y=c}", [PassCall("a", (Setting("x", NESTED), Setting("y", word("c"))))]),
    ],
)
def test_steps_have_names_and_settings(text, steps):
    assert list(parse_steps(text)) == steps


@pytest.mark.parametrize(
    ("text", "words", "column", "width"),
    [
        ("a b", "expected ',' or '{' after a pass name", 3, 1),
        ("a{x=1} b", "expected ','", 8, 1),
        ("a,", "expected the name of a pass", 3, 1),
        ("a{long name}", "expected '=' and a value after option long", 8, 4),
        ("a{x=}", "expected a value", 5, 1),
        ("a{x=1", "expected ',' or '}' in the options of a", 6, 1),
        ("a{x=[1 2]}", "expected ',' or ']' in a list", 8, 1),
        ('a{x="b}', "missing closing quote", 5, 1),
        (r'a{x="\q"}', "invalid escape in quotes", 5, 4),
    ],
)
def test_faults_have_a_caret(text, words, column, width):
    with pytest.raises(UsageError) as raised:
        parse_steps(text)
    assert raised.value.id == "GP210"
    message, line, caret = raised.value.message.splitlines()
    assert message.startswith(words)
    assert message.endswith(f"(column {column})")
    assert line == f"  {text}"
    assert caret == " " * (column + 1) + "^" * width


def test_places_are_those_of_the_token():
    (step,) = parse_steps("abc{x=[1, 2]}")
    assert step.place("here").splitlines()[-1] == "  ^^^"
    assert step.settings[0].value.place("here").splitlines()[-1] == "        ^^^^^^"


@pytest.mark.parametrize(
    ("text", "quoted"), [("a-b_1.0/c:+", "a-b_1.0/c:+"), ("", '""'), ("a b", '"a b"'), ("a,", '"a,"'), ("é", '"é"')]
)
def test_words_are_quoted_if_they_have_other_characters(text, quoted):
    assert quote(text) == quoted
    assert parse_steps(f"a{{x={quoted}}}")[0].settings[0].value.text == text
