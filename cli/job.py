"""What commands that write a result are told alike, and the arguments and options that tell it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .models import cache_option
from .paths import PATH
from .pipelines import Observation, instrument_options

if TYPE_CHECKING:
    from graphpass.io import Weights

__all__ = ["Job", "job_options"]

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Job:
    """What a command that writes a result was told.

    Attributes:
        model: The input.
        output: Where to write.
        verify: Whether to compare the result with the input first.
        declared: What the user says of caches.
        weights: How weights get beside the result; see `graphpass.io.stage_model`.
        if_changed: Whether to do nothing where the result is there.
        observation: How to watch the pipeline.
    """

    model: Path
    output: Path
    verify: bool
    declared: tuple[str, ...]
    weights: Weights
    if_changed: bool = False
    observation: Observation = field(default_factory=Observation)

    @property
    def noted(self) -> dict[str, Any]:
        """What of it the result depends on, for the manifest."""
        told = {"verify": self.verify, "verify_each": self.observation.verify_each}
        return told | {"weights": self.weights, "cache": list(self.declared)}


def job_options(*, output: str, verify: bool, pipeline: bool = True) -> Callable[[Function], Function]:
    """The argument MODEL and the options that make a `Job`, which the command gets as its second argument.

    Args:
        output: The help of ``--output``.
        verify: Whether the result is verified unless told otherwise.
        pipeline: Whether the command watches its pipeline and writes a manifest.
    """
    options = [
        click.argument("model", type=PATH),
        click.option("-o", "--output", type=PATH, required=True, help=output),
        click.option(
            "--verify/--no-verify", default=verify, show_default=True, help="Compare the result with the input first."
        ),
        cache_option,
        click.option(
            "--weights",
            type=click.Choice(["auto", "share", "copy"]),
            default="auto",
            show_default=True,
            help="Copy the input's weight file, or share it: a hard link, to which what passes made is appended.",
        ),
    ]
    if pipeline:
        changed = "Do nothing where the result of the same input, options and versions is there."
        options += [click.option("--if-changed", is_flag=True, help=changed), instrument_options]

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def with_job(**given: Any) -> Any:
            watched = {one.name: given.pop(one.name) for one in fields(Observation) if one.name in given}
            told = {one.name: given.pop(one.name) for one in fields(Job) if one.name in given}
            return command(Job(**told, observation=Observation(**watched)), **given)

        made: Any = with_job
        for option in reversed(options):
            made = option(made)
        return made  # type: ignore[no-any-return]

    return decorate
