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
    """Write a package with a new target and a passing test.

    pip installs the package; graphpass finds the target by its entry point. See docs/writing-passes.md.
    """
    from graphpass.api.new import new_target

    folder = new_target(name, output)
    steps = f"\nnext: pip install -e '{folder}[test]' && python -m pytest {folder}"
    console.result(f"{folder}{'' if console.quiet else steps}")
