"""List the differences between two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from graphpass.ir.model import Model
from graphpass.jobs.watch import Watch
from graphpass.progress import stage
from graphpass.reports.diff import Difference, diff_models
from graphpass.reports.difference import as_json, as_page, as_text

from .reading import Given, read


@dataclass(frozen=True, slots=True)
class Diff:
    """Reports how two models differ.

    Attributes:
        before: The first model.
        after: The second.
        difference: Their differences.
    """

    before: Model
    after: Model
    difference: Difference

    def __str__(self) -> str:
        return self.text()

    @property
    def same(self) -> bool:
        """Return whether there is no difference."""
        return self.difference.same

    def text(self, *, unfolded: bool = False) -> str:
        """Return the text of ``graphpass diff``.

        Args:
            unfolded: Whether all changes are listed, as with ``--all``.
        """
        return as_text(self.before, self.after, self.difference, unfolded=unfolded)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``graphpass diff --format json``."""
        return as_json(self.before, self.after, self.difference)

    def to_html(self, before: str, after: str) -> str:
        """Return the page of ``graphpass diff --format html``, with titles for both models."""
        return as_page([before, after], self.before, self.after, self.difference)


def diff(before: Given, after: Given, *, watch: Watch | None = None) -> Diff:
    """List the differences between two models, which may be of different formats.

    Args:
        before: A file, a folder that holds one model, or a model.
        after: The same.
        watch: Chooses one of several models of a folder.

    Raises:
        ReadError: A model cannot be read.
        UsageError: GP201, a folder holds several models.
    """
    first, second = read(before, (), watch), read(after, (), watch)
    with stage("comparing"):
        return Diff(first, second, diff_models(first, second))
