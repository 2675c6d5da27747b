"""Conversion between passes and pipelines in text or TOML.

The text ``to-openvino,make-stateful{beam-index=false}`` is equivalent to this TOML:

.. code-block:: toml

    [[pass]]
    name = "to-openvino"

    [[pass]]
    name = "make-stateful"
    beam-index = false
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from graphpass.engine.options import Option, options_of
from graphpass.engine.passes import Pass
from graphpass.engine.registry import get_pass, target_class
from graphpass.engine.syntax import OptionValue, PassCall, Setting, parse_steps
from graphpass.engine.target import Target
from graphpass.errors import ReadError, UsageError
from graphpass.ir.model import Model
from graphpass.storage.documents import read_toml, regular

Made = TypeVar("Made")


def parse(text: str) -> tuple[Pass[Model], ...]:
    """Parse pipeline text.

    Args:
        text: ``a,b{x=1,y=true},c{name="quoted, text",sizes=[1,2]}``. Whitespace is ignored; empty text has no passes.

    Returns:
        The passes, in order.

    Raises:
        UsageError: Each message has the column. GP210, invalid syntax; GP211, unknown pass; GP212, unknown option;
            GP213, invalid value; GP220 to GP222, invalid plug-in.

    Examples:
        >>> import graphpass
        >>> [step.name for step in graphpass.parse("to-openvino,make-stateful{beam-index=false}")]
        ['to-openvino', 'make-stateful']
    """
    return tuple(_build(step, get_pass) for step in parse_steps(text))


def format_passes(passes: Iterable[Pass[Any]]) -> str:
    """Return the shortest text of ``passes``, without options that equal their defaults.

    Args:
        passes: The passes, in order.

    Returns:
        Text that `parse` reads.

    Examples:
        >>> import graphpass
        >>> graphpass.format_passes(graphpass.parse("to-openvino, make-stateful{beam-index=false}"))
        'to-openvino,make-stateful{beam-index=false}'
    """
    return ",".join(map(_format, passes))


def stopped_after(passes: tuple[Pass[Any], ...], name: str) -> tuple[Pass[Any], ...]:
    """Return the passes up to the first named ``name``.

    Args:
        passes: The pipeline.
        name: Name of the last pass to keep.

    Returns:
        The beginning of the pipeline.

    Raises:
        UsageError: GP273, the pipeline has no such pass.
    """
    names = [step.name for step in passes]
    if name not in names:
        message = f"cannot stop after {name}, which is not in the pipeline"
        raise UsageError("GP273", message, f"the pipeline has the passes {', '.join(names)}")
    return passes[: names.index(name) + 1]


def parse_target(text: str) -> Target:
    """Parse a target and its options, ``gpu{cache=reorder}``.

    Returns:
        The target with these options.

    Raises:
        UsageError: Each message has the column. GP210, invalid syntax; GP212, unknown option; GP213, invalid value;
            GP215, unknown target; GP220 to GP222, invalid plug-in.
    """
    steps = parse_steps(text)
    if len(steps) != 1:
        message = f"expected one target, got {len(steps)}: {text!r}"
        raise UsageError("GP210", message, "for example: gpu{cache=reorder}")
    return _build(steps[0], target_class)


def format_target(target: Target) -> str:
    """Return the shortest text of ``target``."""
    return _format(target)


def parse_toml(text: str) -> tuple[Pass[Model], ...]:
    """Parse a pipeline in TOML.

    TOML has no null: write ``"none"`` for an option that accepts a number, a boolean or nothing.

    Args:
        text: ``[[pass]]`` tables with ``name`` and the options as keys.

    Returns:
        The passes, in order.

    Raises:
        UsageError: GP214, the text is not TOML or has another form; otherwise as `parse`.

    Examples:
        >>> import graphpass
        >>> [step.name for step in graphpass.parse_toml('pass = [{name = "to-openvino"}]')]
        ['to-openvino']
    """
    try:
        document = read_toml(text)
    except ValueError as error:
        raise UsageError("GP214", f"not TOML: {error}", _TOML_HINT) from error
    tables = document.pop("pass", [])
    if document or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        keys = f", got {', '.join(map(repr, document))}" if document else ""
        raise UsageError("GP214", f"a pipeline in TOML has only [[pass]] tables{keys}", _TOML_HINT)
    return tuple(_build(_toml_step(number, table), get_pass) for number, table in enumerate(tables, start=1))


def load_toml(path: Path) -> tuple[Pass[Model], ...]:
    """Parse a TOML file; see `parse_toml`.

    Args:
        path: The file, in UTF-8.

    Returns:
        The passes, in order.

    Raises:
        ReadError: GP108, the file cannot be read.
        UsageError: As `parse_toml`; the message names the file.

    Examples:
        >>> from pathlib import Path
        >>> import graphpass
        >>> graphpass.load_toml(Path("missing.toml"))
        Traceback (most recent call last):
        graphpass.errors.ReadError: GP108: cannot read the pipeline missing.toml: No such file or directory
        ...
    """
    try:
        text = regular(path).read_text(encoding="utf-8-sig")  # some editors on Windows write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        message = f"cannot read the pipeline {path}: {reason}"
        raise ReadError("GP108", message, "name a TOML file after the @") from error
    try:
        return parse_toml(text)
    except UsageError as error:
        raise UsageError(error.id, f"{path}: {error.message}", error.hint) from error


_TOML_HINT = 'write [[pass]] with name = "make-stateful" and its options, for example beam-index = true'


def _build(step: PassCall, named: Callable[[str], Callable[..., Made]]) -> Made:
    try:
        made_class = named(step.name)
    except UsageError as error:
        raise UsageError(error.id, step.place(error.message), error.hint) from error
    options = {option.name: option for option in options_of(made_class)}
    values: dict[str, object] = {}
    for setting in step.settings:
        option = options.get(setting.name)
        if option is None:
            raise _unknown_option(step, setting, list(options))
        if option.field in values:
            raise UsageError("GP210", setting.place(f"option {setting.name} of {step.name} is set twice"))
        values[option.field] = _read(step, option, setting)
    try:
        made = made_class(**values)
    except ValueError as error:
        raise UsageError("GP213", step.place(f"invalid options of {step.name}: {error}")) from error
    return made


def _unknown_option(step: PassCall, setting: Setting, names: list[str]) -> UsageError:
    near = difflib.get_close_matches(setting.name.replace("_", "-"), names, n=1)
    hint = f"{step.name} has the options {', '.join(names)}" if names else f"{step.name} has no options"
    return UsageError(
        "GP212",
        setting.place(f"{step.name} has no option {setting.name!r}"),
        f"did you mean {near[0]}? {hint}" if near else hint,
    )


def _read(step: PassCall, option: Option, setting: Setting) -> object:
    try:
        return option.type.read(setting.value)
    except ValueError as error:
        message = f"option {option.name} of {step.name}: expected {option.type.text}, got {setting.value.text!r}"
        choices = option.type.choices
        near = difflib.get_close_matches(setting.value.text, choices, n=1)
        hint = f"one of {', '.join(choices)}" if choices else f"the default is {option.default_text}"
        if near:
            hint = f"did you mean {near[0]}? {hint}"
        raise UsageError("GP213", setting.value.place(message), hint) from error


def _format(step: Pass[Any] | Target) -> str:
    pairs = [(option, getattr(step, option.field)) for option in options_of(type(step))]
    written = [f"{option.name}={option.type.write(value)}" for option, value in pairs if value != option.default]
    return f"{step.name}{{{','.join(written)}}}" if written else step.name


def _toml_step(number: int, table: dict[str, Any]) -> PassCall:
    name = table.get("name")
    if not isinstance(name, str):
        raise UsageError("GP214", f"[[pass]] number {number} has no name", _TOML_HINT)

    def place(message: str) -> str:
        return f"[[pass]] number {number}: {message}"

    settings = [Setting(key, _toml_value(value, place), place) for key, value in table.items() if key != "name"]
    return PassCall(name, tuple(settings), place)


def _toml_value(value: object, place: Any) -> OptionValue:
    if isinstance(value, str):
        return OptionValue("string", value, place=place)
    if isinstance(value, list):
        return OptionValue("list", str(value), tuple(_toml_value(item, place) for item in value), place)
    return OptionValue("word", str(value).lower() if isinstance(value, bool) else str(value), place=place)
