"""Declare carried tensors that the dataflow does not show; models keep such notes.

>>> parse_declaration("memory=kv,sequence=1")
Declaration(name='memory', kind='kv', role='unknown', axes=Axes(batch=None, heads=None, sequence=1, head_dim=None))
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from graphpass.errors import ReadError, UsageError
from graphpass.ir.cache import Axes, CacheRole
from graphpass.storage.documents import read_json

DeclaredKind = Literal["kv", "linear", "cross"]

#: Axes that can be declared.
_AXES = tuple(axis.name for axis in fields(Axes))

_ROLES: dict[str, tuple[CacheRole, ...]] = {
    "kv": ("key", "value", "indexer_key", "unknown"),
    "linear": ("conv", "recurrent", "unknown"),
    "cross": ("cross_key", "cross_value", "encoder_hidden", "unknown"),
}

_EXAMPLE = "for example NAME=kv,sequence=2,role=key or NAME=linear,batch=0"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Kind, role and axes of a carried tensor, as a user declares them.

    Attributes:
        name: Variable id, or name of the past input.
        kind: Kind of cache.
        role: Its use; ``unknown`` if not declared.
        axes: Places of the logical axes; ``None`` if not declared.
    """

    name: str
    kind: DeclaredKind
    role: CacheRole = "unknown"
    axes: Axes = field(default_factory=Axes)


def parse_declaration(text: str) -> Declaration:
    """Read ``NAME=KIND[,AXIS=NUMBER ...][,role=ROLE]``.

    Raises:
        UsageError: GP218, it is not a declaration.
    """
    name, _, settings_text = text.partition("=")
    kind, *settings = settings_text.split(",")
    try:
        return _declaration(name, kind, dict(setting.split("=", 1) for setting in settings))
    except ValueError as error:
        reason = "an entry is not an AXIS=NUMBER" if "dictionary update" in str(error) else str(error)
        raise UsageError("GP218", f"{text!r} is not a declaration of a cache: {reason}", _EXAMPLE) from error


def _declaration(name: str, kind: str, settings: dict[str, Any]) -> Declaration:
    if kind not in get_args(DeclaredKind):
        raise ValueError(f"{kind!r} is not a kind: {', '.join(get_args(DeclaredKind))}")
    role = settings.pop("role", "unknown")
    if role not in _ROLES[kind]:
        raise ValueError(f"{role!r} is not a role of a {kind} cache: {', '.join(_ROLES[kind])}")
    wrong = [axis for axis in settings if axis not in _AXES]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not an axis: {', '.join(_AXES)}")
    axes = Axes(**{axis: _place(axis, place) for axis, place in settings.items()})
    if not name:
        raise ValueError("it names no cache")
    if kind == "kv" and axes.sequence is None:
        raise ValueError("a kv cache grows along an axis: sequence=NUMBER is missing")
    if kind == "linear" and axes.sequence is not None:
        raise ValueError("a linear cache has no sequence axis")
    places = [place for place in asdict(axes).values() if place is not None]
    if len(set(places)) < len(places):
        raise ValueError("one axis number is assigned twice")
    return Declaration(name, kind, role, axes)  # type: ignore[arg-type]  # looked up above


def _place(axis: str, text: object) -> int:
    if not str(text).isdecimal():
        raise ValueError(f"{axis} is {text!r}, not the number of an axis, counted from 0")
    return int(str(text))


def note_of(declarations: Iterable[Declaration]) -> str:
    """Return a model's note: a JSON object of kinds, roles and axes by name."""
    noted = {
        declaration.name: {"kind": declaration.kind, "role": declaration.role}
        | {axis: place for axis, place in asdict(declaration.axes).items() if place is not None}
        for declaration in declarations
    }
    return json.dumps(noted, separators=(",", ":"))


def declarations_from(note: str | None) -> tuple[Declaration, ...]:
    """Read the text of `note_of`.

    Raises:
        ReadError: GP109, the note is damaged.
    """
    if not note:
        return ()
    try:
        return tuple(
            _declaration(name, settings.pop("kind", ""), settings) for name, settings in read_json(note).items()
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise ReadError(
            "GP109", f"the model's note graphpass.ir.cache is damaged: {error}", "remove the note, or export again"
        ) from error
