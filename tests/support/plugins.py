"""Distributions with entry points that are found without being installed."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TESTS = Path(__file__).resolve().parents[1]

EntryPoints = dict[str, dict[str, str]]


def distribution(folder: Path, name: str, groups: EntryPoints) -> Path:
    """Make a distribution's metadata in ``folder``, which then goes on ``sys.path``."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line for group, points in groups.items() for line in [f"[{group}]", *(f"{k} = {v}" for k, v in points.items())]
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def plugin_paths(plugin: str, folder: Path) -> list[Path]:
    """Return what goes on ``sys.path`` for a plug-in of tests/, as its pyproject.toml declares it."""
    project = tomllib.loads((_TESTS / plugin / "pyproject.toml").read_text())["project"]
    return [_TESTS / plugin, distribution(folder, project["name"], project["entry-points"])]
