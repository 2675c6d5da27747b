"""The MODEL argument."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from graphpass.errors import UsageError
from graphpass.io import find_model, load, models_in
from graphpass.ir.declaration import parse_declaration

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from graphpass.ir.model import Model

    from .console import Console

__all__ = ["cache_option", "load_model"]

cache_option = click.option(
    "--cache",
    "declared",
    multiple=True,
    metavar="NAME=KIND,...",
    help="Say what a cache is that is of unknown kind: past_0=kv,sequence=2,role=key. May be given several times.",
)


def _locate(path: Path) -> Path:
    """The model file that ``path`` means; asks at a terminal where a folder holds several.

    Raises:
        ReadError: As `graphpass.io.find_model`.
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


def load_model(path: Path, console: Console, declared: Iterable[str] = ()) -> Model:
    """Read the model that ``path`` means.

    Args:
        path: What the user named.
        console: Where to say what is done.
        declared: What the user says of caches, as `cache_option` gives it.

    Raises:
        ReadError: As `graphpass.io.load`.
        UsageError: As `_locate`; GP218, what is said of a cache does not say what it is.
    """
    said = {declaration.name: declaration for declaration in map(parse_declaration, declared)}
    file = _locate(path)
    with console.activity(f"reading {file}"):
        model = load(file)
        if said:
            known = {declaration.name: declaration for declaration in model.declarations}
            model.declare((known | said).values())
        return model
