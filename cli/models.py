"""Take models and other files as arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from graphpass.errors import UsageError
from graphpass.io import find_model, load, models_in
from graphpass.ir.declaration import parse_declaration
from graphpass.ir.model import Model
from graphpass.progress import stage


class _NamedPath(click.Path):
    """Refuses an empty path: an unset variable of a shell would mean the current folder."""

    def __init__(self) -> None:
        # Readers of the file report that it cannot be read, with their own error.
        super().__init__(path_type=Path, readable=False)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not str(value):
            self.fail("the path is empty; where a variable should stand for it, it is not set", param, ctx)
        return super().convert(value, param, ctx)


PATH = _NamedPath()

cache_option = click.option(
    "--cache",
    "declared",
    multiple=True,
    metavar="NAME=KIND,...",
    help="Declare the kind of an unknown cache: past_0=kv,sequence=2,role=key. May be given several times.",
)


def _locate(path: Path) -> Path:
    """Return the model file that ``path`` means, or ask at a terminal."""
    try:
        return find_model(path)
    except UsageError:
        if not sys.stdin.isatty():
            raise
    files = {file.name: file for file in models_in(path)}
    chosen: str = click.prompt(f"{path} holds several models. Which one", type=click.Choice(list(files)), err=True)
    return files[chosen]


def load_model(path: Path, declared: Iterable[str] = ()) -> Model:
    """Read the model that ``path`` means.

    Args:
        path: The user's path.
        declared: The user's declarations of caches, from `cache_option`.

    Raises:
        ReadError: As `graphpass.io.load`.
        UsageError: As `_locate`; GP218, a declaration lacks a kind or axis.
    """
    new = {declaration.name: declaration for declaration in map(parse_declaration, declared)}
    file = _locate(path)
    with stage(f"reading {file}"):
        model = load(file)
        if new:
            known = {declaration.name: declaration for declaration in model.declarations}
            model.declare((known | new).values())
        return model
