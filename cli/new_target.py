"""``graphpass new-target``."""

from __future__ import annotations

from pathlib import Path

import click

from .console import Console, console_command
from .models import PATH


@console_command("new-target")
@click.argument("name")
@click.option("-o", "--output", type=PATH, metavar="DIR", help="The folder to write to, graphpass-NAME by default.")
def command(console: Console, name: str, output: Path | None) -> None:
    """Write a package with a target of one's own, and a test that passes.

    It installs by pip; graphpass finds the target by its entry point. docs/writing-passes.md shows the rest of the way.
    """
    from graphpass.api.new import new_target

    folder = new_target(name, output)
    console.result(f"{folder}\nnext: pip install -e '{folder}[test]' && python -m pytest {folder}")
