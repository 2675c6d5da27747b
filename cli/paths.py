"""The type of arguments and options that are paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import os

__all__ = ["PATH"]


class _NamedPath(click.Path):
    """A path that is not empty: an unset variable of a shell would mean the folder in which it runs."""

    def __init__(self) -> None:
        # What cannot be read is told by whoever reads it, with its own error.
        super().__init__(path_type=Path, readable=False)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not str(value):
            self.fail("the path is empty; where a variable should stand for it, it is not set", param, ctx)
        return super().convert(value, param, ctx)


PATH = _NamedPath()
