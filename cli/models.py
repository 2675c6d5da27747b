"""Models and other files as arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from graphpass.ir.model import Model

from .console import ask_for_model


class _NamedPath(click.Path):
    """Path that must not be empty: an unset shell variable would name the current folder."""

    def __init__(self) -> None:
        # Unreadable files are reported by their readers, with an id.
        super().__init__(path_type=Path, readable=False)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not str(value):
            self.fail("the path is empty; if it is a shell variable, the variable is not set", param, ctx)
        return super().convert(value, param, ctx)


PATH = _NamedPath()

cache_option = click.option(
    "--cache",
    "declared",
    multiple=True,
    metavar="NAME=KIND,...",
    help="Declare the kind of an unknown cache: past_0=kv,sequence=2,role=key. May be given several times.",
)


def load_model(path: Path, declared: Iterable[str] = ()) -> Model:
    """Read the model at ``path``; prompt if a folder has several.

    Args:
        path: A file, or a folder.
        declared: Declarations of unknown caches, from `cache_option`.

    Returns:
        The model, with the declared caches.

    Raises:
        ReadError, UsageError: As `graphpass.jobs.reading.read_model`.
    """
    from graphpass.jobs.reading import read_model

    return read_model(path, declared, ask_for_model)
