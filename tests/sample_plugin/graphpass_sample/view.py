"""The view of a third party's runtime, which knows caches that grow."""

from __future__ import annotations

from graphpass.engine.view import View, judged, listed, without_caches
from graphpass.ir.cache import Inventory
from graphpass.ir.model import Model


def view(model: Model, inventory: Inventory) -> View:
    """Return the caches of ``model`` as the sample runtime sees them."""
    empty = without_caches("sample runtime", inventory)
    if empty is not None:
        return empty
    lost = [cache.name for cache in inventory.of_kind("linear")]
    problems = [f"will overlook {listed(lost)} because it does not grow"] if lost else []
    return judged("sample runtime", inventory, {cache.name: "kv" for cache in inventory.of_kind("kv")}, problems)
