"""The cells of a configuration."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any

from graphpass.error_catalog import explain_error
from graphpass.errors import UsageError
from graphpass.storage.addresses import is_address, matching

from .cells import LISTS, Budgets, Cell, Settings
from .config import Config, ConfigKey, size_of

_OUTPUT = "converted/{model}/{target}"

#: Budgets in bytes, which the configuration may write with a unit.
_SIZES = ("bytes", "bytes_per_token", "memory")


def cells_of(config: Config) -> tuple[Cell, ...]:
    """Return the cells of a matrix, in the order of the configuration.

    Args:
        config: The configuration.

    Raises:
        UsageError: GP231, a pattern of paths matches no file; GP233, two cells have the same name or output; a target
            or pipeline is invalid. Messages have file and line.
        ReadError: GP108, a file with a pipeline cannot be read.
    """
    cells: list[Cell] = []
    outputs: dict[str, Cell] = {}
    names: set[str] = set()
    for number, model in enumerate(config.content["models"]):
        location = config.location / "models" / number
        for cell in _of_model(config, model, location):
            other = outputs.setdefault(os.path.normpath(cell.output), cell)
            if cell.id in names:
                hint = "leave one out, or give it another name"
                raise UsageError("GP233", f"{location}: two cells are called {cell.id}", hint)
            if other is not cell:
                reason = f"{location}: {other.id} and {cell.id} both write to {cell.output}"
                raise UsageError("GP233", reason, "give output the fields {model} and {target}")
            names.add(cell.id)
            cells.append(cell)
    return tuple(cells)


def _of_model(config: Config, model: Mapping[str, Any], location: ConfigKey) -> Iterator[Cell]:
    if "targets" not in model and "pipelines" not in model:
        raise UsageError("GP231", f"{location}: the model has neither targets nor pipelines", 'targets = ["cpu"]')
    defaults = config.content.get("defaults", {})
    output = model.get("output", config.content.get("output", _OUTPUT))
    published = config.content.get("published", output)
    kinds = [
        _of_target(target, location / "targets" / number) for number, target in enumerate(model.get("targets", ()))
    ]
    kinds += [
        _of_pipeline(config, pipeline, location / "pipelines" / number)
        for number, pipeline in enumerate(model.get("pipelines", ()))
    ]
    for name, source in _sources(config, model, location):
        for label, target, pipeline, own in kinds:
            written = {"model": name, "target": _as_path(label)}
            yield Cell(
                name,
                label,
                source,
                _located(config, _filled(output, written)),
                target,
                pipeline,
                _located(config, _filled(published, written)),
                _settings(defaults, model, own),
                expect=own.get("expect"),
            )


def _of_target(
    entry: str | Mapping[str, Any], location: ConfigKey
) -> tuple[str, str | None, str | None, Mapping[str, Any]]:
    from graphpass.engine.pipeline import format_target, parse_target

    own = {"target": entry} if isinstance(entry, str) else entry
    try:
        target = format_target(parse_target(own["target"]))
    except UsageError as error:
        raise location.error(error) from error
    _check_expected(own, location)
    return own.get("name", target), target, None, own


def _of_pipeline(
    config: Config, own: Mapping[str, Any], location: ConfigKey
) -> tuple[str, str | None, str | None, Mapping[str, Any]]:
    from graphpass.engine.pipeline import format_passes, load_toml, parse

    text = own["pipeline"]
    try:
        passes = load_toml(config.folder / text[1:]) if text.startswith("@") else parse(text)
    except UsageError as error:
        raise location.error(error) from error
    _check_expected(own, location)
    return own["name"], None, format_passes(passes), own


def _check_expected(own: Mapping[str, Any], location: ConfigKey) -> None:
    """Check the error that an entry expects; ids of plug-ins begin with other letters.

    Raises:
        UsageError: GP216, there is no such id.
    """
    if own.get("expect", "").startswith("GP"):
        try:
            explain_error(own["expect"])
        except UsageError as error:
            raise (location / "expect").error(error) from error


def _settings(*levels: Mapping[str, Any]) -> Settings:
    """Return the settings of a cell; later levels override earlier ones."""
    settings: dict[str, Any] = {}
    budgets: dict[str, Any] = {}
    for level in levels:
        settings |= {name.replace("-", "_"): value for name, value in level.items()}
        budgets |= {name.replace("-", "_"): value for name, value in level.get("budgets", {}).items()}
    chosen = {field.name: settings[field.name] for field in fields(Settings) if field.name in settings}
    chosen |= {name: tuple(chosen.get(name, ())) for name in LISTS}
    limits = {name: size_of(limit) if name in _SIZES else limit for name, limit in budgets.items()}
    return Settings(**chosen | {"budgets": Budgets(**limits)})


def _sources(config: Config, model: Mapping[str, Any], location: ConfigKey) -> list[tuple[str, str]]:
    """Return name and path of each model that matches the path or pattern.

    Raises:
        UsageError: GP231, no file matches the pattern, or one name is given for all matches.
    """
    pattern: str = model["path"]
    if not glob.has_magic(pattern):
        return [(model.get("name") or _name(pattern), _located(config, pattern))]
    if "name" in model:
        reason = f"{location / 'name'}: all models of {pattern} would have the same name"
        raise UsageError("GP231", reason, "remove name")
    if is_address(pattern):
        files = matching(pattern)
    else:
        files = sorted(glob.glob(pattern, root_dir=config.folder, recursive=True))
    if not files:
        message = f"{location / 'path'}: no file matches {pattern}"
        raise UsageError("GP231", message, "patterns are relative to the configuration's folder")
    parts = PurePosixPath(pattern).parts
    wild = [number for number, part in enumerate(parts) if glob.has_magic(part)]
    before, after = wild[0], len(parts) - 1 - wild[-1]
    return [(_matched(path, before, after), _located(config, path)) for path in files]


def _matched(path: str, before: int, after: int) -> str:
    """Return the components of a path that wildcards match, joined to a name."""
    parts = Path(path).parts
    return _without_suffix("-".join(parts[before : len(parts) - after]))


def _name(path: str) -> str:
    return _without_suffix(PurePosixPath(path).name) or "model"


def _without_suffix(name: str) -> str:
    return re.sub(r"\.(onnx|xml)$", "", name, flags=re.IGNORECASE)


def _filled(template: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\{(model|target)\}", lambda match: names[match[1]], template)


def _as_path(label: str) -> str:
    """Return a folder name for a target: ``gpu-cache-reorder`` for ``gpu{cache=reorder}``."""
    return re.sub(r"[^\w.]+", "-", label).strip("-")


def _located(config: Config, path: str) -> str:
    """Return a path of the configuration relative to the working folder; addresses are unchanged."""
    return path if is_address(path) else os.path.normpath(config.folder / path)
