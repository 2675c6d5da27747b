"""``graphpass passes``."""

from __future__ import annotations

import click

from .console import Console, columns, pass_console, talk_options


@click.command("passes")
@talk_options
@pass_console
def command(console: Console) -> None:
    """List the passes and their options.

    `graphpass explain PASS` tells more of each. A pass whose distribution is broken is listed with the reason.
    """
    from graphpass.engine.options import documentation, options_of
    from graphpass.engine.registry import get_pass, pass_names
    from graphpass.errors import UsageError

    for name in pass_names():
        try:
            pass_class = get_pass(name)
            options = options_of(pass_class)
        except UsageError as error:
            console.result(f"{name}\n    cannot be used: {error.id}: {error.message}")
            continue
        console.result(f"{name}\n    {documentation(pass_class).partition(chr(10))[0]}")
        if options:
            rows = [(option.name, option.type_text, f"default {option.default_text}", option.doc) for option in options]
            console.result("\n".join(columns(rows, indent="      ")))
