"""View a model's caches as other programs do, by their own rules.

Programs that are not targets of graphpass have their rules here; a target brings its own (`Target.view`).

>>> from graphpass.targets.consumers import view_caches
>>> for view in view_caches(model, graphpass.analyze_caches(model)):    # doctest: +SKIP
...     print(view.consumer, view.verdict, *view.reasons, sep="; ")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.engine.registry import usable_targets
from graphpass.targets.consumers import genai, optimum, ort_genai, ort_openvino

if TYPE_CHECKING:
    from graphpass.engine.view import View
    from graphpass.ir.cache import Inventory
    from graphpass.ir.model import Model

__all__ = ["view_caches"]

_CONSUMERS = (genai, optimum, ort_openvino, ort_genai)


def view_caches(model: Model, inventory: Inventory) -> tuple[View, ...]:
    """Return the caches of ``model`` as every known consumer sees them.

    Args:
        model: The model of ``inventory``.
        inventory: The result of `graphpass.analyze_caches`.

    Returns:
        One view a consumer, then one a target with a view, by its name; always the same in the same order.
    """
    views = (target.view(model, inventory) for target in usable_targets())
    return (
        *(consumer.view(model, inventory) for consumer in _CONSUMERS),
        *(view for view in views if view is not None),
    )
