"""Passes, targets and their options as JSON (``schemas/passes.json``, ``schemas/targets.json``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphpass.engine.options import documentation, options_of
from graphpass.engine.passes import Pass
from graphpass.engine.registry import get_pass, get_target, pass_names, target_names
from graphpass.engine.target import Target
from graphpass.errors import UsageError


def passes_json() -> dict[str, Any]:
    """Return the object of ``graphpass passes --format json``."""
    return {"passes": [_if_usable(name, lambda name: pass_json(get_pass(name))) for name in pass_names()]}


def targets_json() -> dict[str, Any]:
    """Return the object of ``graphpass targets --format json``."""
    return {"targets": [_if_usable(name, lambda name: _target(get_target(name))) for name in target_names()]}


def pass_json(pass_class: type[Pass[Any]]) -> dict[str, Any]:
    """Return the object of a pass."""
    return {
        "name": pass_class.name,
        "error": None,
        "summary": documentation(pass_class).partition("\n")[0],
        "documentation": documentation(pass_class),
        "dialect": pass_class.dialect,
        "requires": [condition.name for condition in pass_class.requires],
        "ensures": [condition.name for condition in pass_class.ensures],
        "options": _options(pass_class),
    }


def _target(target: Target) -> dict[str, Any]:
    return {
        "name": target.name,
        "error": None,
        "summary": target.description,
        "documentation": documentation(type(target)),
        "dialect": target.dialect,
        "output_file": target.output_file,
        "contract": [condition.name for condition in target.contract],
        "has_rules": target.has_rules,
        "options": _options(type(target)),
    }


def _if_usable(name: str, described: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return described(name)
    except UsageError as error:
        return {"name": name, "error": f"{error.id}: {error.message}"}


def _options(owner: type) -> list[dict[str, Any]]:
    return [
        {
            "name": option.name,
            "type": option.type.text,
            "default": option.default_text,
            "choices": list(option.type.choices),
            "documentation": option.doc,
        }
        for option in options_of(owner)
    ]
