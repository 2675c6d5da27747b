"""How others will see a model's caches: each by its own rule, as its source has it.

>>> from graphpass.targets.consumers import view_caches
>>> for view in view_caches(model, graphpass.analyze_caches(model)):    # doctest: +SKIP
...     print(view.consumer, view.verdict, *view.reasons, sep="; ")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.targets.consumers import genai, npuw, optimum, ort_genai, ort_openvino
from graphpass.targets.consumers.findings import Totals, total_bytes, warnings_of
from graphpass.targets.consumers.view import CacheView, Sees, Verdict, View

if TYPE_CHECKING:
    from graphpass.ir.cache import Inventory
    from graphpass.ir.model import Model

__all__ = [
    "CacheView",
    "Sees",
    "Totals",
    "Verdict",
    "View",
    "total_bytes",
    "view_caches",
    "warnings_of",
]


def view_caches(model: Model, inventory: Inventory) -> tuple[View, ...]:
    """What every known consumer takes the caches of ``model`` for.

    Args:
        model: The model that ``inventory`` is of.
        inventory: What `graphpass.analyze_caches` says of it.

    Returns:
        One view a consumer, always the same consumers in the same order.
    """
    return tuple(consumer.view(model, inventory) for consumer in (genai, npuw, optimum, ort_openvino, ort_genai))
