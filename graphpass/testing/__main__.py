"""Update the expected graphs in files of cases: ``python -m graphpass.testing FILE...``."""

from __future__ import annotations

from pathlib import Path

import click

from graphpass.errors import GraphpassError
from graphpass.testing.cases import update


@click.command()
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(exists=True, dir_okay=False, readable=True, writable=True, path_type=Path),
)
def command(files: tuple[Path, ...]) -> None:
    """Write the result of the pipeline into each case of the files.

    A case begins with `// ----- TITLE`; docs/writing-passes.md describes the form.
    """
    for file in files:
        _update(file)


def _update(file: Path) -> None:
    try:
        update(file)
    except GraphpassError as error:
        raise click.ClickException(f"{file}: {error}") from error


if __name__ == "__main__":
    command(prog_name="python -m graphpass.testing")
