"""Views: a model's caches as other programs classify them by their own rules.

This package has the rules of programs that are not targets of graphpass; targets have theirs in `Target.view`.

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
    """Return the caches of ``model`` as each known program classifies them.

    Args:
        model: The model.
        inventory: Inventory of the model, from `graphpass.analyze_caches`.

    Returns:
        A view for each program, then for each target with a view, ordered by name.
    """
    views = (target.view(model, inventory) for target in usable_targets())
    return (
        *(consumer.view(model, inventory) for consumer in _CONSUMERS),
        *(view for view in views if view is not None),
    )
