"""Group caches by layer."""

from __future__ import annotations

from collections import defaultdict

from graphpass.ir.cache import Cache, Inventory


def roles_by_layer(inventory: Inventory) -> tuple[dict[str, Cache], ...]:
    """Return the caches of each layer by role.

    Caches of unknown layer are omitted. Of two ``kv`` caches of a layer, one may be of unknown role, as in latent
    attention. It gets the role, key or value, that the other cache does not have.
    """
    layers: defaultdict[int, dict[str, Cache]] = defaultdict(dict)
    for cache in inventory.caches:
        if cache.layer is not None:
            layers[cache.layer].setdefault(cache.role, cache)
    for roles in layers.values():
        other = roles.pop("unknown", None)
        lacking = [role for role in ("key", "value") if role not in roles]
        if other is not None and other.kind == "kv" and len(lacking) == 1:
            roles[lacking[0]] = other
    return tuple(layers[layer] for layer in sorted(layers))
