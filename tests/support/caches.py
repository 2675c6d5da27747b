"""Caches and inventories that tests state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphpass.ir.cache import BHSD, Cache, Inventory

KEY = Cache("k", "kv", "key", 0, BHSD, ("b", 2, "past", 4), "f32", "k", "k_out", ("a reason",))


def cache(name: str = "k", **known: Any) -> Cache:
    """A key, with the fields that are given."""
    return replace(KEY, name=name, read=name, write=f"{name}_out", **known)


def inventory(*caches: Cache, stateful: bool = False, **known: Any) -> Inventory:
    return Inventory(
        **{"attention": (), "unpaired_inputs": (), "unpaired_outputs": ()} | known, stateful=stateful, caches=caches
    )
