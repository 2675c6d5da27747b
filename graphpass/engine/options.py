"""The options of a pass: its dataclass fields, with types, defaults and documentation, as text and back."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import sys
import types
import typing
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, cast

from graphpass.engine.syntax import Value, quote
from graphpass.errors import UsageError

__all__ = ["Option", "OptionType", "documentation", "options_of"]

_NONE = "none"


class OptionType(ABC):
    """How values of one type are written."""

    @property
    @abstractmethod
    def text(self) -> str:
        """How documentation calls the type: ``int``, ``beam | scatter``, ``[str, ...]``."""

    @property
    def choices(self) -> tuple[str, ...]:
        """All that can be written, where that is a short list."""
        return ()

    @abstractmethod
    def read(self, value: Value) -> object:
        """The value that was written.

        Raises:
            ValueError: It is not of this type.
        """

    @abstractmethod
    def write(self, value: object) -> str:
        """How ``value`` is written."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a pass.

    Attributes:
        name: As written in pipelines, in kebab-case.
        field: The dataclass field.
        type: How its values are written.
        default: What it is where nothing is written.
        doc: From the ``Attributes:`` or ``Options:`` section of the class's docstring.
    """

    name: str
    field: str
    type: OptionType
    default: object
    doc: str

    @property
    def type_text(self) -> str:
        """The type for people."""
        return self.type.text

    @property
    def default_text(self) -> str:
        """The default as it is written in a pipeline."""
        return self.type.write(self.default)


@functools.cache
def options_of(pass_class: type) -> tuple[Option, ...]:
    """The options of a pass or target, in the order of its fields.

    Args:
        pass_class: A frozen dataclass.

    Returns:
        One option for each field that its constructor takes.

    Raises:
        UsageError: GP222, a field has no default or a type that cannot be written in a pipeline.
    """
    docs = _field_docs(documentation(pass_class))
    return tuple(_option(pass_class, field, docs) for field in dataclasses.fields(pass_class) if field.init)


def documentation(pass_class: type) -> str:
    """The class's docstring without indentation; empty where it has none of its own."""
    doc = pass_class.__dict__.get("__doc__") or ""
    # A dataclass without docstring gets its signature for one.
    return "" if doc.startswith(f"{pass_class.__name__}(") else inspect.cleandoc(doc)


def _option(pass_class: type, field: dataclasses.Field[Any], docs: dict[str, str]) -> Option:
    where = f"field {field.name} of {pass_class.__module__}.{pass_class.__qualname__}"
    if field.default is not dataclasses.MISSING:
        default = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        raise UsageError("GP222", f"{where} has no default", "every option of a pass needs one")
    try:
        option_type = _type_of(_annotation(pass_class, field))
    except (TypeError, NameError) as error:
        hint = "use bool, int, float, str, a Literal of strings, X | None or tuple[X, ...], imported at run time"
        raise UsageError("GP222", f"{where} cannot be an option: {error}", hint) from error
    return Option(field.name.replace("_", "-"), field.name, option_type, default, docs.get(field.name, ""))


def _annotation(pass_class: type, field: dataclasses.Field[Any]) -> object:
    # Only this annotation is resolved: names in the others may exist for type checkers alone.
    owner = next(base for base in pass_class.__mro__ if field.name in inspect.get_annotations(base))
    holder = types.SimpleNamespace(__annotations__={field.name: field.type})
    return typing.get_type_hints(holder, vars(sys.modules[owner.__module__]))[field.name]


def _field_docs(doc: str) -> dict[str, str]:
    section = re.search(r"^(?:Attributes|Options):\n((?:[ \t]+.*\n?|\n)+)", doc, re.MULTILINE)
    if section is None:
        return {}
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + section[1]).splitlines():
        if match := re.match(r"(\w+)(?: \([^)]*\))?: *(.*)", line):
            name, found[match[1]] = match[1], match[2]
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _type_of(annotation: object) -> OptionType:
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal and all(isinstance(choice, str) for choice in arguments):
        return _Choice(arguments)
    if origin in (typing.Union, types.UnionType) and len(arguments) == 2 and type(None) in arguments:
        return _Maybe(_type_of(next(argument for argument in arguments if argument is not type(None))))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _Many(_type_of(arguments[0]))
    raise TypeError(f"{annotation} is not a type that a pipeline can write")


class _Bool(OptionType):
    text = "bool"
    choices = ("true", "false")

    def read(self, value: Value) -> bool:
        return {"true": True, "false": False}[_word(value)] if _word(value) in self.choices else _refuse()

    def write(self, value: object) -> str:
        return "true" if value else "false"


class _Int(OptionType):
    text = "int"

    def read(self, value: Value) -> int:
        return int(_word(value))

    def write(self, value: object) -> str:
        return str(int(cast("int", value)))


class _Float(OptionType):
    text = "float"

    def read(self, value: Value) -> float:
        number = float(_word(value))
        # No pass could tell it from itself, and a pipeline with it would not equal its own text.
        return _refuse() if math.isnan(number) else number

    def write(self, value: object) -> str:
        return repr(float(cast("float", value)))


class _Str(OptionType):
    text = "str"

    def read(self, value: Value) -> str:
        return _refuse() if value.kind == "list" else value.text

    def write(self, value: object) -> str:
        return quote(cast("str", value))


@dataclass(frozen=True)
class _Choice(OptionType):
    among: tuple[str, ...]

    @property
    def text(self) -> str:
        return " | ".join(map(quote, self.among))

    @property
    def choices(self) -> tuple[str, ...]:
        return self.among

    def read(self, value: Value) -> str:
        return value.text if value.kind != "list" and value.text in self.among else _refuse()

    def write(self, value: object) -> str:
        return quote(cast("str", value))


@dataclass(frozen=True)
class _Maybe(OptionType):
    inner: OptionType

    @property
    def text(self) -> str:
        return f"{self.inner.text} | {_NONE}"

    @property
    def choices(self) -> tuple[str, ...]:
        return (*self.inner.choices, _NONE) if self.inner.choices else ()

    def read(self, value: Value) -> object:
        # Quotes tell the string "none" from nothing. TOML has strings in quotes only, so there they tell it just where
        # a string could be meant.
        bare = value.kind == "word" or (value.kind == "string" and not isinstance(self.inner, (_Str, _Choice)))
        return None if bare and value.text == _NONE else self.inner.read(value)

    def write(self, value: object) -> str:
        if value is None:
            return _NONE
        written = self.inner.write(value)
        return f'"{written}"' if written == _NONE else written


@dataclass(frozen=True)
class _Many(OptionType):
    inner: OptionType

    @property
    def text(self) -> str:
        return f"[{self.inner.text}, ...]"

    def read(self, value: Value) -> tuple[object, ...]:
        return tuple(self.inner.read(item) for item in value.items) if value.kind == "list" else _refuse()

    def write(self, value: object) -> str:
        return f"[{','.join(self.inner.write(item) for item in cast('tuple[object, ...]', value))}]"


_SCALARS: dict[object, OptionType] = {bool: _Bool(), int: _Int(), float: _Float(), str: _Str()}


def _word(value: Value) -> str:
    return value.text if value.kind == "word" else _refuse()


def _refuse() -> typing.NoReturn:
    raise ValueError
