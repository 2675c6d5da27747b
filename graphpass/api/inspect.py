"""Report inputs, outputs, caches and attention of a model."""

from __future__ import annotations

from collections.abc import Iterable

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.jobs.watch import Watch
from graphpass.progress import stage, stages
from graphpass.reports.attention import grouped_query_misses
from graphpass.reports.inventory import Inspection
from graphpass.targets.consumers import view_caches

from .reading import ModelSource, read_model


def inspect(model: ModelSource, *, caches: Iterable[str] = (), watch: Watch | None = None) -> Inspection:
    """Report inputs, outputs, caches and attention of a model.

    Args:
        model: A file, a folder with one model, or a loaded model.
        caches: Declarations of unknown caches: ``past_0=kv,sequence=2,role=key``.
        watch: Selects the model if a folder has several.

    Returns:
        The inputs, outputs, caches and attention blocks; ``print`` shows them as ``graphpass inspect`` does.

    Raises:
        ReadError: The model cannot be read.
        UsageError: GP201, the folder has several models; GP218, a declaration lacks a kind or axis.

    Examples:
        >>> import graphpass
        >>> found = graphpass.inspect("build/fixtures/llama/onnx")
        >>> found.inventory.kind, len(found.inventory.caches), len(found.inventory.attention)
        ('kv', 4, 2)
    """
    with stages("inspecting", 4):  # reading, analyzing, the kernels of ONNX Runtime, other programs
        loaded = read_model(model, caches, watch)
        with stage("analyzing"):
            inventory = analyze_caches(loaded)
        with stage("predicting fusions"):
            grouped = grouped_query_misses(loaded)
        with stage("comparing with other programs"):
            return Inspection(loaded, inventory, view_caches(loaded, inventory), grouped)
