"""Output of commands: results on stdout; notes, progress and errors on stderr."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from graphpass.errors import GraphpassError
from graphpass.jobs.watch import Watch
from graphpass.printable import on_one_line, printable, printable_json
from graphpass.progress import watched

from .limits import Limits, continue_in_child, limit_options
from .watch import watcher

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Console(Watch):
    """Prints the output of a command, and observes its jobs.

    Attributes:
        quiet: Print results and errors only.
        verbose: Print details and tracebacks.
        in_child: Run commands that read models in a child process.
        in_json: Print errors as JSON on stdout, too.
    """

    quiet: bool = False
    verbose: bool = False
    in_child: bool = False
    in_json: bool = False

    def result(self, text: str) -> None:
        """Print a result."""
        click.echo(printable(text))

    def page(self, text: str) -> None:
        """Print an HTML page unchanged: its names are escaped already."""
        click.echo(text, nl=False)

    def report(self, form: str, text: Callable[[], str], data: Callable[[], Any]) -> None:
        """Print a result in the format of `format_option`.

        Args:
            form: ``text`` or ``json``.
            text: Returns the text.
            data: Returns the object to print as JSON.
        """
        if form != "json":
            self.result(text())
            return
        from graphpass.reports.header import with_header

        content = data()
        content = with_header(content) if isinstance(content, dict) else content
        self._print_json(content)

    def note(self, text: str) -> None:
        """Print a note, unless quiet."""
        if not self.quiet:
            click.echo(printable(text), err=True)

    def detail(self, text: str) -> None:
        """Print a line that an option requests, also with ``--quiet``."""
        click.echo(printable(text), err=True)

    def choose(self, folder: Path) -> Path | None:
        """Return the model that the user selects, as `ask_for_model`."""
        return ask_for_model(folder)

    def error(self, error: GraphpassError) -> None:
        """Print an error and its hint."""
        click.echo(f"{click.style('error:', fg='red', bold=True)} {error.id}: {_inset(error.message)}", err=True)
        if error.hint:
            click.echo(f"{click.style('hint:', fg='cyan')} {_inset(error.hint)}", err=True)

    def failed(self, error_id: str | None, message: str, hint: str | None, code: int) -> None:
        """Print an error in place of the result if the format is JSON.

        Args:
            error_id: Id of the catalog, ``GP101``; ``None`` for errors of the command line and internal errors.
            message: The message, without id and hint.
            hint: Advice, if any.
            code: Exit code of the program.
        """
        if not self.in_json:
            return
        from graphpass.reports.header import with_header

        entry = {"id": error_id, "message": message, "hint": hint, "exit_code": code}
        self._print_json(with_header({"error": entry}))

    @staticmethod
    def _print_json(content: Any) -> None:
        click.echo(printable_json(json.dumps(content, indent=2, allow_nan=False)))


def _inset(text: str) -> str:
    """Return indented lines after the first, so that names with newlines cannot imitate messages."""
    return re.sub(r"\n(?=\S)", "\n  ", printable(text))


def ask_for_model(folder: Path) -> Path | None:
    """Prompt for a model of the folder.

    Returns:
        The selected file; ``None`` if stdin is not a terminal.
    """
    if not sys.stdin.isatty():
        return None
    from graphpass.model_files import models_in

    files = {file.name: file for file in models_in(folder)}
    question = f"{on_one_line(str(folder))} has several models. Select one"
    chosen: str = click.prompt(question, type=click.Choice(list(files)), err=True)
    return files[chosen]


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    console = context.ensure_object(Console)
    if value:
        setattr(console, str(parameter.name), True)
    if console.quiet and console.verbose:
        raise click.UsageError("--quiet and --verbose exclude each other", context)


def talk_options() -> list[click.Parameter]:
    """Return the options ``--quiet`` and ``--verbose``, which the group and each command accept."""
    texts = {"quiet": "Print results and errors only.", "verbose": "Print more, and tracebacks."}
    return [
        click.Option([f"-{name[0]}", f"--{name}"], is_flag=True, expose_value=False, callback=_remember, help=text)
        for name, text in texts.items()
    ]


def console_command(
    name: str, kind: type[click.Command] = click.Command, *, limited: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a command of a function on a `Console`.

    Args:
        name: Name of the command.
        kind: Class of the command.
        limited: Whether the command has limits of time and memory, because it reads models, which may be hostile.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def shown(console: Console, *arguments: Any, **options: Any) -> None:
            if limited:
                limits = Limits(options.pop("timeout"), options.pop("memory"))
                if console.in_child:
                    continue_in_child(limits)
            with watched(None if console.quiet else watcher(sys.stderr, verbose=console.verbose)):
                function(console, *arguments, **options)

        passed = click.make_pass_decorator(Console)(shown)
        return click.command(name, kind, params=talk_options())(limit_options(passed) if limited else passed)

    return decorate


def format_option(*forms: str) -> Callable[[Function], Function]:
    """Return the option ``--format``; the first format is the default."""
    return click.option("--format", "form", type=click.Choice(forms), default=forms[0], help="Output format.")
