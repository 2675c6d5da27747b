"""Print results on stdout; logs, progress and errors on stderr."""

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

from .limits import Limits, go_on_in_child, limit_options
from .watch import watcher

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Console(Watch):
    """Prints for a command, and watches its jobs.

    Attributes:
        quiet: Print nothing but results and errors.
        verbose: Print more.
        in_child: Work in a process of its own.
        in_json: Print errors as JSON, too, as results are.
    """

    quiet: bool = False
    verbose: bool = False
    in_child: bool = False
    in_json: bool = False

    def result(self, text: str) -> None:
        """Print a result."""
        click.echo(printable(text))

    def page(self, text: str) -> None:
        """Print a page of HTML, which escapes names itself."""
        click.echo(text, nl=False)

    def report(self, form: str, text: Callable[[], str], data: Callable[[], Any]) -> None:
        """Print a result in the form that `format_option` gave.

        Args:
            form: ``text`` or ``json``.
            text: Makes the text.
            data: Makes the object for JSON.
        """
        if form != "json":
            self.result(text())
            return
        from graphpass.reports.header import with_header

        content = data()
        content = with_header(content) if isinstance(content, dict) else content
        self._print_json(content)

    def note(self, text: str) -> None:
        """Print a remark, unless quiet."""
        if not self.quiet:
            click.echo(printable(text), err=True)

    def detail(self, text: str) -> None:
        """Print a line that the user asked for, quiet or not."""
        click.echo(printable(text), err=True)

    def choose(self, folder: Path) -> Path | None:
        """Ask for one of the models of a folder, at a terminal."""
        return ask_for_model(folder)

    def error(self, error: GraphpassError) -> None:
        """Print an error and its cure."""
        click.echo(f"{click.style('error:', fg='red', bold=True)} {error.id}: {_inset(error.message)}", err=True)
        if error.hint:
            click.echo(f"{click.style('hint:', fg='cyan')} {_inset(error.hint)}", err=True)

    def failed(self, error_id: str | None, message: str, hint: str | None, code: int) -> None:
        """Print an error in the place of the result, if that was to be JSON."""
        if not self.in_json:
            return
        from graphpass.reports.header import with_header

        entry = {"id": error_id, "message": message, "hint": hint, "exit_code": code}
        self._print_json(with_header({"error": entry}))

    @staticmethod
    def _print_json(content: Any) -> None:
        click.echo(printable_json(json.dumps(content, indent=2, allow_nan=False)))


def _inset(text: str) -> str:
    """Indent all lines but the first, to keep names from forging a line."""
    return re.sub(r"\n(?=\S)", "\n  ", printable(text))


def ask_for_model(folder: Path) -> Path | None:
    """Ask for one of the models of a folder, if somebody is at a terminal."""
    if not sys.stdin.isatty():
        return None
    from graphpass.io import models_in

    files = {file.name: file for file in models_in(folder)}
    question = f"{on_one_line(str(folder))} holds several models. Which one"
    chosen: str = click.prompt(question, type=click.Choice(list(files)), err=True)
    return files[chosen]


def _remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    console = context.ensure_object(Console)
    if value:
        setattr(console, str(parameter.name), True)
    if console.quiet and console.verbose:
        raise click.UsageError("--quiet and --verbose exclude each other", context)


def talk_options() -> list[click.Parameter]:
    """Return the options ``--quiet`` and ``--verbose``, for the group and every command."""
    texts = {"quiet": "Print results and errors only.", "verbose": "Print more, and tracebacks."}
    return [
        click.Option([f"-{name[0]}", f"--{name}"], is_flag=True, expose_value=False, callback=_remember, help=text)
        for name, text in texts.items()
    ]


def console_command(
    name: str, kind: type[click.Command] = click.Command, *, limited: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that takes a `Console` first.

    Args:
        name: Its name.
        kind: Its class.
        limited: Whether it reads models, which may be hostile, and so has limits of time and memory.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        @functools.wraps(function)
        def shown(console: Console, *arguments: Any, **options: Any) -> None:
            if limited:
                limits = Limits(options.pop("timeout"), options.pop("memory"))
                if console.in_child:
                    go_on_in_child(limits)
            with watched(None if console.quiet else watcher(sys.stderr, verbose=console.verbose)):
                function(console, *arguments, **options)

        passed = click.make_pass_decorator(Console)(shown)
        return click.command(name, kind, params=talk_options())(limit_options(passed) if limited else passed)

    return decorate


def format_option(*forms: str) -> Callable[[Function], Function]:
    """Return the option ``--format``."""
    return click.option("--format", "form", type=click.Choice(forms), default=forms[0], help="Output format.")
