"""Report on one model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.view import View
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model
from graphpass.jobs.watch import Watch
from graphpass.progress import stage
from graphpass.reports.inventory import as_json, as_text
from graphpass.targets.consumers import view_caches

from .reading import Given, read


@dataclass(frozen=True, slots=True)
class Inspection:
    """Reports on the caches and the attention of a model.

    Attributes:
        model: The model.
        inventory: Its caches and attention, with evidence.
        views: Its caches as other programs see them.
    """

    model: Model
    inventory: Inventory
    views: tuple[View, ...]

    def __str__(self) -> str:
        return self.text()

    def text(self, *, unfolded: bool = False) -> str:
        """Return the text of ``graphpass inspect``.

        Args:
            unfolded: Whether each cache stands by itself, as with ``--all``.
        """
        return as_text(self.model, self.inventory, self.views, unfolded=unfolded)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``graphpass inspect --format json``."""
        return as_json(self.model, self.inventory, self.views)

    def to_html(self, title: str) -> str:
        """Return the page of ``graphpass inspect --html``."""
        from graphpass.reports.page import render

        return render(self.model, self.inventory, title)


def inspect(model: Given, *, caches: Iterable[str] = (), watch: Watch | None = None) -> Inspection:
    """Report inputs, outputs, caches and attention of a model.

    Args:
        model: A file, a folder that holds one model, or a model.
        caches: Declarations of unknown caches: ``past_0=kv,sequence=2,role=key``.
        watch: Chooses one of several models of a folder.

    Raises:
        ReadError: The model cannot be read.
        UsageError: GP201, a folder holds several models; GP218, a declaration lacks a kind or axis.
    """
    loaded = read(model, caches, watch)
    with stage("analyzing"):
        inventory = analyze_caches(loaded)
        return Inspection(loaded, inventory, view_caches(loaded, inventory))
