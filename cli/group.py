"""A click group that imports a command's module only when that command is used."""

from __future__ import annotations

import difflib
import importlib

import click

__all__ = ["COMMANDS", "LazyGroup"]

#: Every command and the first line of its help, so that listing them imports none.
COMMANDS = {
    "inspect": "Tell what a model holds: inputs, outputs, caches, attention.",
    "why": "Tell why a cache is called what it is called.",
    "check": "Predict how a target's runtime treats a model, and try it.",
    "convert": "Make a model fit for a target, and prove that it computes the same.",
    "split": "Make a prefill and a decode model of static shapes, over one file of weights.",
    "run": "Run a pipeline of passes on a model.",
    "diff": "Tell how two models differ.",
    "verify": "Run two models in lockstep and tell where they part.",
    "passes": "List the passes and their options.",
    "explain": "Explain a pass, or an error by its id.",
    "targets": "List the targets that models can be converted to.",
}


class LazyGroup(click.Group):
    """Knows its commands by name; each lives in the module of that name as ``command``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: D102, ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: D102, ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f".{cmd_name}", __package__).command
        return command

    def resolve_command(  # noqa: D102
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            advice = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{advice}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: D102, ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
