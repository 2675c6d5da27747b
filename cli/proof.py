"""Options of proofs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--budget",
        metavar="60s,4GB",
        help="Time and memory for comparing whole models; larger models are compared layer by layer. By default 60 s "
        "and half of the free memory.",
    ),
    click.option(
        "--require",
        type=click.Choice(["same", "proven"]),
        default="same",
        show_default=True,
        help="same: outputs equal within the tolerance on the sampled inputs; proven: equal for every input, padding "
        "excepted.",
    ),
    click.option(
        "--allow",
        multiple=True,
        metavar="NODE",
        help="Accept this node although it compares the batch size, a row's index or token ids and the reference does "
        "not, or although its outputs differ on random inputs. May be repeated.",
    ),
    click.option(
        "--all-layers",
        is_flag=True,
        help="Compare layer by layer, and run every layer instead of one of each structure.",
    ),
)


def proof_options(command: Function) -> Function:
    """Add the options ``--budget``, ``--require``, ``--allow`` and ``--all-layers``.

    Returns:
        ``command`` with the options.
    """
    made: Any = command
    for option in reversed(_OPTIONS):
        made = option(made)
    return made  # type: ignore[no-any-return]
