"""``graphpass completion``, and completions of names in arguments."""

from __future__ import annotations

import click

from .console import Console, console_command


@console_command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(console: Console, shell: str) -> None:
    """Print a script that lets a shell complete commands, options, targets and passes.

    \b
    bash:  echo 'eval "$(graphpass completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(graphpass completion zsh)"' >> ~/.zshrc
    fish:  graphpass completion fish > ~/.config/fish/completions/graphpass.fish
    """  # noqa: D301 - click keeps the lines of a paragraph after this character
    from click.shell_completion import get_completion_class

    from .main import COMPLETION, cli

    made = get_completion_class(shell)
    assert made is not None
    console.result(made(cli, {}, "graphpass", COMPLETION).source().rstrip("\n"))


def complete_targets(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Return targets that begin so."""
    from graphpass.engine.registry import target_names

    return [name for name in target_names() if name.startswith(begun)]


def complete_passes(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """Return pipelines with the last pass completed."""
    from graphpass.engine.registry import pass_names

    before, comma, last = begun.rpartition(",")
    return [f"{before}{comma}{name}" for name in pass_names() if name.startswith(last)]


def complete_explained(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Return passes and ids of errors that begin so."""
    from graphpass.error_catalog import CATALOG

    errors = [name for name in CATALOG if begun and name.startswith(begun.upper())]
    return [*complete_passes(context, parameter, begun), *errors]
