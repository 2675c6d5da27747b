"""The configuration of a matrix: ``graphpass.toml``, or ``[tool.graphpass]`` in ``pyproject.toml``."""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from graphpass.errors import GraphpassError, ReadError, UsageError
from graphpass.storage.documents import read_toml, regular

from .toml_lines import line_of

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

FailOn = Literal["error", "warning", "changed"]

_FILE, _PROJECT = "graphpass.toml", "pyproject.toml"

_HINT = "docs/ci.md documents the keys; editors complete them with graphpass/reports/schemas/config.json"

_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

_TYPES = {
    "object": "a table",
    "array": "an array",
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
}

#: Errors that are shown of a file.
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """Location of a value in the configuration file, for messages.

    Attributes:
        file: The file.
        text: Content of the file.
        path: Keys and indices of the value.
    """

    file: Path
    text: str = field(repr=False)
    path: tuple[str | int, ...] = ()

    def __truediv__(self, key: str | int) -> ConfigKey:
        """Return the location of a key or item of the value."""
        return ConfigKey(self.file, self.text, (*self.path, key))

    def __str__(self) -> str:
        """Return ``graphpass.toml:12``."""
        return f"{self.file}:{line_of(self.text, self.path)}"

    def error(self, error: GraphpassError) -> GraphpassError:
        """Return the error with this location before its message."""
        return type(error)(error.id, f"{self}: {error.message}", error.hint)


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration that conforms to the schema; paths, targets and pipelines are not checked yet.

    Attributes:
        folder: The folder of the file; paths are relative to it.
        location: Location of the table with the configuration's keys.
        content: The keys and values in the file.
    """

    folder: Path
    location: ConfigKey
    content: Mapping[str, Any]

    @property
    def fail_on(self) -> frozenset[FailOn]:
        """Return the findings that fail the run."""
        stated = self.content.get("fail-on", [])
        return frozenset(["error", *([stated] if isinstance(stated, str) else stated)])

    @property
    def memory(self) -> int | None:
        """Return the memory limit of all cells together, in bytes; ``None`` if not configured."""
        return size_of(self.content["memory"]) if "memory" in self.content else None

    def path_of(self, *keys: str) -> Path | None:
        """Return the path at ``keys``, relative to the folder; ``None`` if not configured."""
        value: Any = self.content
        for key in keys:
            value = value.get(key, {})
        return self.folder / value if value else None


def size_of(size: int | str) -> int:
    """Return the number of bytes of a size such as ``2 GiB``, or of a number.

    Raises:
        ValueError: ``size`` is not a size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(\w*)", str(size))
    if match is None or (match[2] or "B") not in _SIZES:
        raise ValueError("not a size")
    return int(float(match[1]) * _SIZES[match[2] or "B"])


def find_config(path: Path | None) -> Path:
    """Return the configuration file.

    Args:
        path: The file, or a folder with it; ``None`` to search the current folder and its parents.

    Raises:
        UsageError: GP232, there is none.
        ReadError: GP114, the given file does not exist, or cannot be read.
    """
    hint = f"write {_FILE}, or [tool.graphpass] in {_PROJECT}; docs/ci.md has an example"
    if path is None:
        for folder in (Path.cwd(), *Path.cwd().parents):
            with contextlib.suppress(PermissionError):  # folders above may be those of others
                if (config_file := _config_in(folder)) is not None:
                    return config_file
        raise UsageError("GP232", f"no configuration in {Path.cwd()} or above", hint)
    try:
        config = _config_in(path) if path.is_dir() else path
        if config == path and not path.exists():
            raise ReadError("GP114", f"the configuration {path} does not exist", "name a TOML file")
    except PermissionError as error:
        remedy = "grant this user read access to it and its folders"
        raise ReadError("GP114", f"cannot read the configuration {path}: {error.strerror}", remedy) from error
    if config is None:
        raise UsageError("GP232", f"no configuration in {path}", hint)
    return config


def _config_in(folder: Path) -> Path | None:
    if (folder / _FILE).is_file():
        return _shortened(folder / _FILE)
    project = folder / _PROJECT
    return _shortened(project) if project.is_file() and "[tool.graphpass" in _text(project) else None


def load_config(file: Path) -> Config:
    """Read a configuration and validate it against the schema.

    Returns:
        The configuration, in the folder of ``file``.

    Raises:
        ReadError: GP114, the file cannot be read.
        UsageError: GP231, the file is not TOML or violates the schema; the message lists the lines.
    """  # noqa: DOC501 - _not_toml is a UsageError
    text = _text(file)
    try:
        document = read_toml(text)
    except ValueError as error:
        raise _not_toml(file, str(error)) from error
    keys = ("tool", "graphpass") if file.name == _PROJECT else ()
    location = functools.reduce(lambda at, key: at / key, keys, ConfigKey(file, text))
    content = functools.reduce(lambda table, key: table.get(key, {}), keys, document)
    if offences := list(_offences(content, location)):
        shown = offences[:_SHOWN] + ([f"and {len(offences) - _SHOWN} more"] if len(offences) > _SHOWN else [])
        raise UsageError("GP231", "\n".join(shown), _HINT)
    return Config(file.parent, location, content)


def _not_toml(file: Path, reason: str) -> UsageError:
    """Return the error of a parser, which ends with its place: ``(at line 2, column 18)``."""
    line = re.search(r"at line (\d+)", reason)
    place = f"{file}:{line[1]}" if line else str(file)
    hint = "in a path write / between folders, or put it in single quotes" if "\\" in reason else _HINT
    return UsageError("GP231", f"{place}: not TOML: {reason}", hint)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of configurations."""
    text = resources.files("graphpass.reports").joinpath("schemas/config.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def _offences(content: Mapping[str, Any], location: ConfigKey) -> Iterator[str]:
    from jsonschema import Draft202012Validator

    errors = Draft202012Validator(schema()).iter_errors(content)
    offences = [(at, message) for error in errors for at, message in _described(error)] + list(_unusable(content))
    numbered = [(line_of(location.text, (*location.path, *at)), message) for at, message in offences]
    return (f"{location.file}:{line}: {message}" for line, message in sorted(numbered))


def _unusable(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield location and message of NUL characters and nan, which the schema allows."""
    values: list[tuple[tuple[str | int, ...], Any]] = [((), content)]
    for path, value in values:
        if isinstance(value, Mapping):
            values += [((*path, key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            values += [((*path, number), inner) for number, inner in enumerate(value)]
        elif isinstance(value, str) and "\0" in value:
            yield path, f"{_name(path)} has a NUL character: {value!r}"
        elif isinstance(value, float) and math.isnan(value):
            yield path, f"{_name(path)}: expected a number, got nan"


def _described(error: ValidationError) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the locations and messages of a validation error."""
    path = tuple(error.absolute_path)
    name, value = _name(path), error.instance
    rule: Any = error.validator_value
    if error.validator == "anyOf":
        yield from _described_by_form(error)
    elif error.validator == "additionalProperties":
        known = error.schema["properties"]
        for key in sorted(set(value) - set(known)):
            near = difflib.get_close_matches(key, known, n=1)
            advice = f"did you mean {near[0]}?" if near else f"its keys are {', '.join(sorted(known))}"
            yield (*path, key), f"{name} has no key {key!r}; {advice}"
    elif error.validator == "required":
        missing = [key for key in rule if key not in value]
        yield path, f"{name} lacks {' and '.join(missing)}"
    else:
        yield path, f"{name}: expected {_expected(error)}, got {value!r}"


def _described_by_form(error: ValidationError) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield locations and messages of an error in one of several forms."""
    causes = error.context or ()
    others = {"type", "enum"} if isinstance(error.instance, (Mapping, list)) else {"type"}
    meant = [cause for cause in causes if cause.validator not in others or cause.relative_path]
    for cause in meant:
        yield from _described(cause)
    if not meant:
        path = tuple(error.absolute_path)
        expected = " or ".join(map(_expected, causes))
        yield path, f"{_name(path)}: expected {expected}, got {error.instance!r}"


def _expected(error: ValidationError) -> str:
    """Return what a rule of the schema expects of a single value."""
    rule: Any = error.validator_value
    match error.validator:
        case "type":
            unit = " of seconds" if str(error.schema.get("description", "")).startswith("Seconds") else ""
            return _TYPES[rule] + unit
        case "enum":
            return " or ".join(filter(None, (", ".join(map(str, rule[:-1])), str(rule[-1]))))
        case "minItems" | "minLength":
            return "at least one" if error.validator == "minItems" else "text"
        case "minimum":
            return f"{rule} or more"
        case "exclusiveMinimum":
            return f"more than {rule}"
        case _:
            return f"a value such as {error.schema['examples'][0]!r}"


def _name(path: Sequence[str | int]) -> str:
    keys = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(keys).lstrip(".") or "the configuration"


def _text(file: Path) -> str:
    try:
        return regular(file).read_text(encoding="utf-8-sig")  # some editors on Windows write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ReadError("GP114", f"cannot read the configuration {file}: {reason}") from error


def _shortened(file: Path) -> Path:
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file
