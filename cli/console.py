"""Where the command line says what: results on stdout; logs, progress and errors on stderr."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graphpass.progress import Activity

if TYPE_CHECKING:
    from graphpass.errors import GraphpassError

__all__ = ["Console", "columns", "pass_console", "talk_options"]

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(slots=True)
class Console:
    """What a command talks through.

    Attributes:
        quiet: Say nothing but results and errors.
        verbose: Say more.
    """

    quiet: bool = False
    verbose: bool = False

    def result(self, text: str) -> None:
        """Print what was asked for."""
        click.echo(text)

    def note(self, text: str) -> None:
        """Say something on the side, unless quiet."""
        if not self.quiet:
            click.echo(text, err=True)

    def activity(self, text: str) -> contextlib.AbstractContextManager[object]:
        """A context that tells, unless quiet, what takes over a second."""
        return contextlib.nullcontext() if self.quiet else Activity(text, sys.stderr)

    def error(self, error: GraphpassError) -> None:
        """Print an error and what to do about it."""
        click.echo(f"{click.style('error:', fg='red', bold=True)} {error.id}: {error.message}", err=True)
        if error.hint:
            click.echo(f"{click.style('hint:', fg='cyan')} {error.hint}", err=True)


pass_console = click.make_pass_decorator(Console)


def talk_options(command: Function) -> Function:
    """The options ``--quiet`` and ``--verbose``, which the group and every command take."""

    def remember(context: click.Context, parameter: click.Parameter, given: bool) -> None:
        console = context.ensure_object(Console)
        if given:
            setattr(console, str(parameter.name), True)
        if console.quiet and console.verbose:
            raise click.UsageError("--quiet and --verbose exclude each other", context)

    for name, doc in (("verbose", "Say more; show tracebacks."), ("quiet", "Print results and errors only.")):
        option = click.option(f"-{name[0]}", f"--{name}", is_flag=True, expose_value=False, callback=remember, help=doc)
        command = option(command)
    return command


def columns(rows: Sequence[tuple[str, ...]], indent: str = "  ") -> list[str]:
    """Rows as lines, with each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
