"""Options of passes and targets: dataclass fields, their types and texts."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from graphpass.engine.syntax import OptionValue, quote
from graphpass.errors import UsageError

_NONE = "none"


@dataclass(frozen=True, slots=True)
class OptionType:
    """Converts values of one type from and to text.

    Attributes:
        text: Name of the type in documentation: ``int``, ``beam | scatter``, ``[str, ...]``.
        read: Returns the value; raises `ValueError` if the text is not of this type.
        write: Returns the text of a value.
        choices: All valid texts, if the set is small.
        quoted: Whether strings are in quotes.
    """

    text: str
    read: Callable[[OptionValue], object]
    write: Callable[[Any], str]
    choices: tuple[str, ...] = ()
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a pass.

    Attributes:
        name: Name in pipelines, in kebab-case.
        field: The dataclass field.
        type: The type of its values.
        default: The value if the option is not set.
        doc: From the ``Attributes:`` or ``Options:`` section of the class's docstring.
    """

    name: str
    field: str
    type: OptionType
    default: object
    doc: str

    @property
    def default_text(self) -> str:
        """Return the default as pipeline text."""
        return self.type.write(self.default)

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Return name, type, default and documentation for a table."""
        return self.name, self.type.text, f"default {self.default_text}", self.doc


@functools.cache
def options_of(pass_class: type) -> tuple[Option, ...]:
    """Return one option for each constructor field of a pass or target, in order.

    Raises:
        UsageError: GP222, a field has no default, or its type has no pipeline syntax.
    """
    docs = _field_docs(documentation(pass_class))
    return tuple(_option(pass_class, field, docs) for field in dataclasses.fields(pass_class) if field.init)


def documentation(pass_class: type) -> str:
    """Return a class's own docstring without indentation; empty if missing."""
    doc = pass_class.__dict__.get("__doc__") or ""
    # The generated docstring of a dataclass is its signature.
    return "" if doc.startswith(f"{pass_class.__name__}(") else inspect.cleandoc(doc)


def _option(pass_class: type, field: dataclasses.Field[Any], docs: dict[str, str]) -> Option:
    where = f"field {field.name} of {pass_class.__module__}.{pass_class.__qualname__}"
    if field.default is not dataclasses.MISSING:
        default = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        raise UsageError("GP222", f"{where} has no default", "set a default: every option requires one")
    try:
        option_type = _type_of(_annotation(pass_class, field))
    except (TypeError, NameError) as error:
        hint = "use bool, int, float, str, a Literal of strings, X | None or tuple[X, ...], imported at run time"
        raise UsageError("GP222", f"{where} cannot be an option: {error}", hint) from error
    return Option(field.name.replace("_", "-"), field.name, option_type, default, docs.get(field.name, ""))


def _annotation(pass_class: type, field: dataclasses.Field[Any]) -> object:
    # Resolve only this annotation: other annotations may use names that exist for type checkers only.
    owner = next(base for base in pass_class.__mro__ if field.name in inspect.get_annotations(base))
    holder = types.SimpleNamespace(__annotations__={field.name: field.type})
    return typing.get_type_hints(holder, vars(sys.modules[owner.__module__]))[field.name]


def _field_docs(doc: str) -> dict[str, str]:
    section = re.search(r"^(?:Attributes|Options):\n((?:[ \t]+.*\n?|\n)+)", doc, re.MULTILINE)
    if section is None:
        return {}
    docs: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + section[1]).splitlines():
        if match := re.match(r"(\w+)(?: \([^)]*\))?: *(.*)", line):
            name, docs[match[1]] = match[1], match[2]
        elif name and line.strip():
            docs[name] = f"{docs[name]} {line.strip()}".strip()
    return docs


def _type_of(annotation: object) -> OptionType:
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal and all(isinstance(choice, str) for choice in arguments):
        return OptionType(
            " | ".join(map(quote, arguments)), functools.partial(_read_choice, arguments), quote, arguments, quoted=True
        )
    if origin in (typing.Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return _or_none(_type_of(next(argument for argument in arguments if argument is not type(None))))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = _type_of(arguments[0])
        return OptionType(
            f"[{inner.text}, ...]",
            lambda value: tuple(map(inner.read, value.items)) if value.kind == "list" else _refuse(),
            lambda values: f"[{','.join(map(inner.write, values))}]",
        )
    raise TypeError(f"values of type {annotation} have no pipeline syntax")


def _or_none(inner: OptionType) -> OptionType:
    def read(value: OptionValue) -> object:
        # Quotes distinguish the string "none" from the absent value. All strings in TOML have quotes, so quotes count
        # only if the option accepts strings.
        bare = value.kind == "word" or (value.kind == "string" and not inner.quoted)
        return None if bare and value.text == _NONE else inner.read(value)

    def write(value: object) -> str:
        written = _NONE if value is None else inner.write(value)
        return f'"{written}"' if value is not None and written == _NONE else written

    choices = (*inner.choices, _NONE) if inner.choices else ()
    return OptionType(f"{inner.text} | {_NONE}", read, write, choices)


def _read_bool(value: OptionValue) -> bool:
    return {"true": True, "false": False}[_word(value)] if _word(value) in {"true", "false"} else _refuse()


def _read_float(value: OptionValue) -> float:
    number = float(_word(value))
    # NaN is not equal to itself, so a pipeline with NaN would not equal its own text.
    return _refuse() if math.isnan(number) else number


def _read_str(value: OptionValue) -> str:
    return _refuse() if value.kind == "list" else value.text


def _read_choice(choices: tuple[str, ...], value: OptionValue) -> str:
    return value.text if value.kind != "list" and value.text in choices else _refuse()


_SCALARS: dict[object, OptionType] = {
    bool: OptionType("bool", _read_bool, lambda value: "true" if value else "false", ("true", "false")),
    int: OptionType("int", lambda value: int(_word(value)), lambda value: str(int(value))),
    float: OptionType("float", _read_float, lambda value: repr(float(value))),
    str: OptionType("str", _read_str, quote, quoted=True),
}


def _word(value: OptionValue) -> str:
    return value.text if value.kind == "word" else _refuse()


def _refuse() -> typing.NoReturn:
    raise ValueError
