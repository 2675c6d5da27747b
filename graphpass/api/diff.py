"""List the differences between two models."""

from __future__ import annotations

from graphpass.jobs.watch import Watch
from graphpass.progress import stages
from graphpass.reports.diff import diff_models
from graphpass.reports.difference import Diff

from .reading import ModelSource, read_model


def diff(before: ModelSource, after: ModelSource, *, watch: Watch | None = None) -> Diff:
    """List the differences between two models, which may be of different formats.

    Args:
        before: A file, a folder with one model, or a loaded model.
        after: The model to compare with ``before``, in the same forms.
        watch: Selects the model if a folder has several.

    Returns:
        The differences; ``Diff.same`` is true if there are none.

    Raises:
        ReadError: A model cannot be read.
        UsageError: GP201, the folder has several models.

    Examples:
        >>> import graphpass
        >>> graphpass.diff("build/fixtures/llama/onnx", "build/fixtures/llama/onnx-nocache").same
        False
    """
    with stages("comparing", 5):  # reading both, operators, caches, weights
        first, second = read_model(before, (), watch), read_model(after, (), watch)
        return Diff(first, second, diff_models(first, second))
