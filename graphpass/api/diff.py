"""List the differences between two models."""

from __future__ import annotations

from graphpass.jobs.watch import Watch
from graphpass.progress import stages
from graphpass.reports.diff import diff_models
from graphpass.reports.difference import Diff

from .reading import Given, read_model


def diff(before: Given, after: Given, *, watch: Watch | None = None) -> Diff:
    """List the differences between two models, which may be of different formats.

    Args:
        before: A file, a folder that holds one model, or a model.
        after: The same.
        watch: Chooses one of several models of a folder.

    Returns:
        The differences; ``Diff.same`` if there are none.

    Raises:
        ReadError: A model cannot be read.
        UsageError: GP201, a folder holds several models.

    Examples:
        >>> import graphpass
        >>> graphpass.diff("build/fixtures/llama/onnx", "build/fixtures/llama/onnx-nocache").same
        False
    """
    with stages("comparing", 5):  # reading both, operators, caches, weights
        first, second = read_model(before, (), watch), read_model(after, (), watch)
        return Diff(first, second, diff_models(first, second))
