"""The tokenizer beside a model, converted for openvino.genai."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from pathlib import Path

    from .console import Console

__all__ = ["add_tokenizer", "tokenizer_option"]

Function = TypeVar("Function", bound=Callable[..., Any])


def tokenizer_option(command: Function) -> Function:
    """The option ``--tokenizer``."""
    return click.option(
        "--tokenizer/--no-tokenizer",
        default=True,
        show_default=True,
        help="Convert the tokenizer beside the input for openvino.genai; needs graphpass[genai].",
    )(command)


def add_tokenizer(model_file: Path, folder: Path, console: Console) -> list[str]:
    """Convert a tokenizer that is not converted yet, where the packages for that are there.

    Args:
        model_file: A file of the input, beside which it lies.
        folder: Where to write; see `graphpass.storage.staging.staging`.
        console: Where to say what is done.

    Returns:
        A line about it; none where there is no tokenizer to convert.

    Raises:
        UnsupportedError: GP348, it cannot be converted.
    """
    from graphpass.artifacts.tokenizer import has_tokenizer, missing_packages, stage_tokenizer

    if not has_tokenizer(model_file.parent):
        return []
    if missing := missing_packages():
        return [f"tokenizer not converted: no {' and no '.join(missing)} here; pip install 'graphpass[genai]'"]
    with console.activity("converting the tokenizer"):
        return [f"tokenizer converted by {stage_tokenizer(model_file.parent, folder)}"]
