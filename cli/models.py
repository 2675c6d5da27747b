"""The MODEL argument."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from graphpass.errors import UsageError
from graphpass.model import find_model, load, models_in

if TYPE_CHECKING:
    from pathlib import Path

    from graphpass.model import Model

    from .console import Console

__all__ = ["load_model"]


def _locate(path: Path) -> Path:
    """The model file that ``path`` means; asks at a terminal where a folder holds several.

    Raises:
        ReadError: As `graphpass.model.find_model`.
        UsageError: GP201, several models and nobody to ask.
    """
    try:
        return find_model(path)
    except UsageError:
        if not sys.stdin.isatty():
            raise
    files = {file.name: file for file in models_in(path)}
    chosen: str = click.prompt(f"{path} holds several models. Which one", type=click.Choice(list(files)), err=True)
    return files[chosen]


def load_model(path: Path, console: Console) -> Model:
    """Read the model that ``path`` means.

    Raises:
        ReadError: As `graphpass.model.load`.
        UsageError: As `_locate`.
    """
    file = _locate(path)
    with console.activity(f"reading {file}"):
        return load(file)
