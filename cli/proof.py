"""Take the options of proofs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--budget",
        metavar="60s,4GB",
        help="Time and memory for whole models; larger ones are compared layer by layer. By default a minute and half "
        "of the free memory.",
    ),
    click.option(
        "--require",
        type=click.Choice(["same", "proven"]),
        default="same",
        show_default=True,
        help="Demand equal numbers for all that was fed, or equality by structure for every input, padding aside.",
    ),
    click.option(
        "--allow",
        multiple=True,
        metavar="NODE",
        help="Let a node make the models differ where no prompt shows it: it compares the batch size, the number of a "
        "row or token ids as the reference does not, or differs on random numbers. May be repeated.",
    ),
    click.option(
        "--all-layers", is_flag=True, help="Compare layer by layer, and run all layers, not one of each structure."
    ),
)


def proof_options(command: Function) -> Function:
    """Add the options ``budget``, ``require``, ``allow`` and ``all_layers``."""
    made: Any = command
    for option in reversed(_OPTIONS):
        made = option(made)
    return made  # type: ignore[no-any-return]
