"""The program ``graphpass``; the only module that maps errors to exit codes."""

from __future__ import annotations

import difflib
import importlib
import io
import itertools
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TextIO

import click

from graphpass.errors import GraphpassError, UnsupportedError, WriteError
from graphpass.printable import printable

from .console import Console, talk_options

#: Commands and the first lines of their help, so that the list of commands imports no command.
COMMANDS = {
    "inspect": "Report inputs, outputs, caches and attention of a model.",
    "print": "Print the graph of a model as text, an operator a line.",
    "why": "Explain the kind and role of a cache, and the attention that reads it.",
    "check": "Predict how a target's runtime executes a model, and confirm it by a trial.",
    "convert": "Convert a model for a target, and verify that the result computes the same.",
    "split": "Split a model into prefill and decode models of static shapes, with shared weights.",
    "run": "Run a pipeline of passes on a model.",
    "reduce": "Reduce a model and a failing pipeline to the smallest case that still fails.",
    "bundle": "Pack a failing case with versions, command and log into one file, without weights.",
    "new-pass": "Write a package with a new pass and a passing test.",
    "new-target": "Write a package with a new target and a passing test.",
    "diff": "List the differences between two models.",
    "verify": "Run two models in lockstep and report the first difference.",
    "ci": "Convert a matrix of models and targets, and report on it.",
    "passes": "List the passes and their options.",
    "explain": "Explain a pass, or an error by its id.",
    "targets": "List the targets that models can be converted to.",
    "devices": "List the runtimes and adapters of this machine, and how to install missing ones.",
    "completion": "Print a shell's completion script for commands, options, targets and passes.",
}

#: Environment variable with which a shell requests completions.
COMPLETION = "_GRAPHPASS_COMPLETE"

_USAGE = 2
_INTERNAL = 70
_INTERRUPTED = 130
_BROKEN_PIPE = 141  # the exit code that a shell reports after SIGPIPE


class _LazyGroup(click.Group):
    """Imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f".{cmd_name.replace('-', '_')}", __package__).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            advice = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"Command {args[0]!r} does not exist.{advice}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"graphpass {version('graphpass')}")
        context.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, params=talk_options())
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """Rewrite exported LLM graphs to run correctly and fast on a runtime, and verify them.

    Exit codes: 0 ok; 1 findings, or verification failed; 2 usage; 3 cannot read the model; 4 unsupported; 5 a pass
    failed; 6 cannot write; 70 internal error; 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None, *, in_child: bool = False) -> int:
    """Run the command line.

    Args:
        arguments: Arguments without the program's name; by default those of this process.
        in_child: Whether commands that read models run in a child process, with limits of time and memory.

    Returns:
        The exit code.
    """
    console = Console(in_child=in_child)
    color = False if os.environ.get("NO_COLOR") else None
    words = list(sys.argv[1:] if arguments is None else arguments)
    console.in_json = "--format=json" in words or ("--format", "json") in itertools.pairwise(words)
    _open_streams()
    if instruction := os.environ.get(COMPLETION):
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "graphpass", COMPLETION, instruction)
    try:
        with click.Context(click.Command("graphpass"), color=color):
            return _run(words, console, color)
    except BrokenPipeError:
        _close_output(sys.stdout, sys.stderr)
        return _BROKEN_PIPE


def _run(arguments: list[str], console: Console, color: bool | None) -> int:
    try:
        with cli.make_context("graphpass", arguments, obj=console, color=color) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        _show(error)
        console.failed(None, error.format_message(), None, _USAGE)
        return _USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return _INTERRUPTED
    except GraphpassError as error:
        if console.verbose:
            _print_traceback()
        return _refused(error, console)
    except MemoryError as error:
        reason = f"there is not enough memory: {error}" if str(error) else "there is not enough memory"
        hint = "use smaller sizes, or a machine with more memory; convert --no-verify requires less"
        return _refused(UnsupportedError("GP395", reason, hint), console)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            return _internal(error, console)
        # An error without a file name is an error of a stream, here stdout.
        _close_output(sys.stdout)
        refused = WriteError(
            "GP501", f"cannot print the result: {error.strerror}", "free space, or redirect the output elsewhere"
        )
        return _refused(refused, console)
    except Exception as error:  # noqa: BLE001 - the program's outermost frame
        return _internal(error, console)
    return 0


def _refused(error: GraphpassError, console: Console) -> int:
    try:
        console.error(error)
        console.failed(error.id, error.message, error.hint, error.exit_code)
    except BrokenPipeError:
        raise
    except OSError:  # the message cannot be printed; the exit code still reports the error
        _close_output(sys.stderr)
    return error.exit_code


def _internal(error: Exception, console: Console) -> int:
    message = f"internal error: {type(error).__name__}: {' '.join(str(error).split())}"
    click.echo(printable(message), err=True)
    if console.verbose:
        _print_traceback()
    advice = "this is a bug in graphpass; please report it with the command and the output of --verbose"
    click.echo(f"hint: {advice}", err=True)
    console.failed(None, message, advice, _INTERNAL)
    return _INTERNAL


def _print_traceback() -> None:
    click.echo(printable(traceback.format_exc()), err=True, nl=False)


def _show(error: click.ClickException) -> None:
    shown = io.StringIO()
    error.show(shown)
    click.echo(printable(shown.getvalue()), err=True, nl=False)


def _open_streams() -> None:
    """Open standard streams that the caller closed, and escape characters that stdout cannot encode.

    Without this, the next file to be opened would get the descriptor of a closed stream, and libraries print to it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _close_output(*streams: TextIO) -> None:
    """Redirect streams to the null device, so that the interpreter reports no error at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(null, stream.fileno())
