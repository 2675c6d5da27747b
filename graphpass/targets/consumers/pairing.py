"""Pairing of pasts and presents by order, as in programs that find them by name."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphpass.engine.view import Sees, is_mistaken, listed
from graphpass.ir.cache import Inventory


@dataclass(slots=True)
class Pairing:
    """The result of pairing by order.

    Attributes:
        sees: Kind of each cache according to the program.
        problems: Wrong pairs, and tensors that are mistaken for caches.
        overlooked: Caches whose past the program does not find.
    """

    sees: dict[str, Sees] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    overlooked: list[str] = field(default_factory=list)


def paired_by_order(inventory: Inventory, pasts: list[str], presents: list[str], kinds: dict[str, Sees]) -> Pairing:
    """Pair ``pasts`` with ``presents`` by order.

    Args:
        inventory: The caches of the stateless model.
        pasts: Names of the inputs that the program finds.
        presents: Names of the outputs that the program finds.
        kinds: Kind of each past according to the program.

    Returns:
        The pairing, with a sentence for each problem.
    """
    pairing = Pairing()
    caches = {cache.read: cache for cache in inventory.caches}
    crossed: list[tuple[str, str]] = []
    for past, present in zip(pasts, presents, strict=False):
        cache = caches.get(past)
        if cache is not None:
            pairing.sees[cache.name] = kinds[past]
        if cache is None or (cache.kind == "other" and is_mistaken(cache, kinds[past])):
            pairing.problems.append(f"will mistake {past} for a cache")
        elif cache.write != present:
            crossed.append((past, present))
    if crossed:
        past, present = crossed[0]
        more = f", and so on ({len(crossed)} in all)" if len(crossed) > 1 else ""
        pairing.problems.append(f"will pair {past} with {present}, because it pairs by order{more}")
    wrong: dict[Sees, list[str]] = {}
    for cache in inventory.of_kind("kv", "linear"):
        seen = pairing.sees.get(cache.name)
        if seen is None:
            pairing.overlooked.append(cache.name)
        elif seen != cache.kind:
            wrong.setdefault(seen, []).append(cache.name)
    titles = {"kv": "KV", "linear": "linear", "cross": "cross"}
    for kind, names in wrong.items():
        pairing.problems.append(f"will treat {listed(names)} as a {titles[kind]} cache because of its name")
    return pairing
