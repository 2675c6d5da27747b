"""``graphpass passes``."""

from __future__ import annotations

from .console import Console, console_command


@console_command("passes")
def command(console: Console) -> None:
    """List the passes and their options.

    `graphpass explain PASS` prints more about one. A pass of a broken distribution is listed with the reason.
    """
    from graphpass.engine.options import documentation, options_of
    from graphpass.engine.registry import get_pass, pass_names
    from graphpass.errors import UsageError
    from graphpass.reports.text import columns

    for name in pass_names():
        try:
            pass_class = get_pass(name)
            options = options_of(pass_class)
        except UsageError as error:
            console.result(f"{name}\n    cannot be used: {error.id}: {error.message}")
            continue
        summary = documentation(pass_class).partition("\n")[0]
        rows = columns([option.row for option in options], indent="      ")
        console.result("\n".join([name, f"    {summary}", *rows]))
