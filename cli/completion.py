"""``graphpass completion``, and completion of arguments."""

from __future__ import annotations

import click

from .console import Console, console_command


@console_command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(console: Console, shell: str) -> None:
    """Print a shell's completion script for commands, options, targets and passes.

    \b
    bash:  echo 'eval "$(graphpass completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(graphpass completion zsh)"' >> ~/.zshrc
    fish:  graphpass completion fish > ~/.config/fish/completions/graphpass.fish
    """  # noqa: D301 - click keeps the lines of a paragraph after this character
    from click.shell_completion import get_completion_class

    from .main import COMPLETION, cli

    completer = get_completion_class(shell)
    assert completer is not None
    console.result(completer(cli, {}, "graphpass", COMPLETION).source().rstrip("\n"))


def complete_targets(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the targets that an argument can be completed to.

    Args:
        _: Context of the command, unused.
        __: The parameter to complete, unused.
        incomplete: The typed beginning of a target's name.
    """
    from graphpass.engine.registry import target_names

    return [name for name in target_names() if name.startswith(incomplete)]


def complete_passes(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the pipelines that an argument can be completed to.

    Args:
        _: Context of the command, unused.
        __: The parameter to complete, unused.
        incomplete: A pipeline, of which the name of the last pass is completed.
    """
    from graphpass.engine.registry import pass_names

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in pass_names() if name.startswith(last)]


def complete_explained(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the passes and error ids that an argument can be completed to.

    Args:
        context: Context of the command.
        parameter: The parameter to complete.
        incomplete: The typed beginning; error ids match in upper and lower case.
    """
    from graphpass.error_catalog import CATALOG

    errors = [name for name in CATALOG if incomplete and name.startswith(incomplete.upper())]
    return [*complete_passes(context, parameter, incomplete), *errors]
