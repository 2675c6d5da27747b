"""Take models and other files as arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from graphpass.ir.model import Model

from .console import ask_for_model


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


def load_model(path: Path, declared: Iterable[str] = ()) -> Model:
    """Read the model at ``path``; of several, ask at a terminal.

    Args:
        path: The user's path.
        declared: The user's declarations of caches, from `cache_option`.

    Raises:
        ReadError, UsageError: As `graphpass.jobs.reading.read_model`.
    """
    from graphpass.jobs.reading import read_model

    return read_model(path, declared, ask_for_model)
