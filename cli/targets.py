"""``graphpass targets``."""

from __future__ import annotations

import click

from .console import Console, pass_console, talk_options


@click.command("targets")
@talk_options
@pass_console
def command(console: Console) -> None:
    """List the targets that models can be converted to.

    A target of a broken distribution is listed with the reason.
    """
    import textwrap

    from graphpass.engine.options import documentation, options_of
    from graphpass.engine.registry import get_target, target_names
    from graphpass.errors import UsageError

    for name in target_names():
        try:
            target = get_target(name)
        except UsageError as error:
            console.result(f"{name}\n    cannot be used: {error.id}: {error.message}")
            continue
        contract = ", ".join(condition.name for condition in target.contract) or "nothing"
        rules = "graphpass check knows its rules" if target.has_rules else "it has no rules for graphpass check"
        console.result(
            f"{name}\n    {target.description}\n    writes {target.output_file}; promises: {contract}; {rules}"
        )
        for option in options_of(type(target)):
            console.result(f"    option {option.name}: {option.type_text}, default {option.default_text}")
        console.result("\n" + textwrap.indent(documentation(type(target)), "    "))
