"""Options of passes and targets: values from text and back, documentation, and fields that cannot be options."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from graphpass.engine.options import documentation, options_of
from graphpass.engine.syntax import OptionValue
from graphpass.errors import UsageError


@dataclass(frozen=True)
class Sample:
    """A sample.

    Options:
        many_words: Documentation
            of two lines.
        form (str): One line.
    """

    many_words: bool = False
    count: int | None = None
    form: Literal["beam", "to scatter"] = "beam"
    label: str | None = "none"
    scales: tuple[float, ...] = field(default_factory=lambda: (1.0,))
    hidden: int = field(default=0, init=False)


OPTIONS = {option.field: option for option in options_of(Sample)}


def word(text):
    return OptionValue("word", text)


def string(text):
    return OptionValue("string", text)


def test_fields_of_the_constructor_are_options_with_their_documentation():
    assert [option.name for option in options_of(Sample)] == ["many-words", "count", "form", "label", "scales"]
    assert OPTIONS["many_words"].row == ("many-words", "bool", "default false", "Documentation of two lines.")
    assert OPTIONS["form"].type.text == 'beam | "to scatter"'
    assert [OPTIONS[name].default_text for name in ("count", "label", "scales")] == ["none", '"none"', "[1.0]"]


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("many_words", word("true"), True),
        ("count", word("-3"), -3),
        ("count", word("none"), None),
        ("count", string("none"), None),
        ("label", word("none"), None),
        ("label", string("none"), "none"),
        ("label", word("x"), "x"),
        ("form", string("to scatter"), "to scatter"),
        ("scales", OptionValue("list", "", (word("1"), word("2.5"))), (1.0, 2.5)),
    ],
)
def test_values_are_read(name, given, value):
    assert OPTIONS[name].type.read(given) == value
    if value not in (None, "x"):
        assert OPTIONS[name].type.write(value) in ('"none"', '"to scatter"', "true", "-3", "[1.0,2.5]")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("many_words", word("yes")),
        ("many_words", string("true")),
        ("count", word("1.5")),
        ("count", string("1")),
        ("form", word("neither")),
        ("label", OptionValue("list", "", ())),
        ("scales", word("1")),
        ("scales", OptionValue("list", "", (word("nan"),))),
    ],
)
def test_values_of_other_types_are_refused(name, given):
    with pytest.raises(ValueError):  # noqa: PT011 - it has no message
        OPTIONS[name].type.read(given)


@dataclass
class NoDefault:
    value: int


@dataclass
class NoSyntax:
    value: dict[str, int] = field(default_factory=dict)


@pytest.mark.parametrize(("owner", "reason"), [(NoDefault, "has no default"), (NoSyntax, "cannot be an option")])
def test_fields_that_cannot_be_options_are_refused(owner, reason):
    with pytest.raises(UsageError, match=rf"GP222: field value .* {reason}"):
        options_of(owner)


def test_the_signature_of_a_dataclass_is_no_documentation():
    assert documentation(Sample).startswith("A sample.")
    assert not documentation(NoDefault)
