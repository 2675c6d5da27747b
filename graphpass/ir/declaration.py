"""Declarations of caches that the dataflow does not determine; models store them as metadata.

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
    """Kind, role and axes of a cache, declared by a user.

    Attributes:
        name: Variable id, or name of the past input.
        kind: Kind of the cache.
        role: Role of the cache; ``unknown`` if not declared.
        axes: Indices of the logical axes; ``None`` if not declared.
    """

    name: str
    kind: DeclaredKind
    role: CacheRole = "unknown"
    axes: Axes = field(default_factory=Axes)


def parse_declaration(text: str) -> Declaration:
    """Read ``NAME=KIND[,AXIS=NUMBER ...][,role=ROLE]``.

    Returns:
        The declaration, with ``None`` for axes and a role that ``text`` omits.

    Raises:
        UsageError: GP218, ``text`` is not a declaration.
    """
    name, _, settings_text = text.partition("=")
    kind, *settings = settings_text.split(",")
    try:
        return _declaration(name, kind, dict(setting.split("=", 1) for setting in settings))
    except ValueError as error:
        reason = "each entry must be AXIS=NUMBER" if "dictionary update" in str(error) else str(error)
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
    axes = Axes(**{axis: _axis_index(axis, index) for axis, index in settings.items()})
    if not name:
        raise ValueError("the name of the cache is missing")
    if kind == "kv" and axes.sequence is None:
        raise ValueError("a kv cache requires sequence=NUMBER, the axis that grows")
    if kind == "linear" and axes.sequence is not None:
        raise ValueError("a linear cache has no sequence axis")
    indices = [index for index in asdict(axes).values() if index is not None]
    if len(set(indices)) < len(indices):
        raise ValueError("two axes have the same number")
    return Declaration(name, kind, role, axes)  # type: ignore[arg-type]  # looked up above


def _axis_index(axis: str, text: object) -> int:
    if not str(text).isdecimal():
        raise ValueError(f"expected the index of an axis for {axis}, counted from 0, got {text!r}")
    return int(str(text))


def note_of(declarations: Iterable[Declaration]) -> str:
    """Return the declarations as metadata: a JSON object of kinds, roles and axes by name."""
    noted = {
        declaration.name: {"kind": declaration.kind, "role": declaration.role}
        | {axis: index for axis, index in asdict(declaration.axes).items() if index is not None}
        for declaration in declarations
    }
    return json.dumps(noted, separators=(",", ":"))


def declarations_from(note: str | None) -> tuple[Declaration, ...]:
    """Read the text of `note_of`.

    Returns:
        The declarations; empty without a note.

    Raises:
        ReadError: GP109, the note is invalid.
    """
    if not note:
        return ()
    try:
        return tuple(
            _declaration(name, settings.pop("kind", ""), settings) for name, settings in read_json(note).items()
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise ReadError(
            "GP109", f"the model's metadata graphpass.caches is invalid: {error}", "remove it, or export again"
        ) from error
