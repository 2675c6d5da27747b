"""How much caches and files take, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphpass.ir.cache import Cache, Inventory

__all__ = ["in_bytes", "sizes_of", "totals_of"]


def sizes_of(caches: Iterable[Cache]) -> str:
    """What caches take: ``256 B per token``, ``32.8 KB fixed``, or both; empty where a size is unknown."""
    caches = list(caches)
    growing = [cache.bytes_per_token for cache in caches if cache.axes.sequence is not None]
    fixed = [cache.fixed_bytes for cache in caches if cache.axes.sequence is None]
    if None in growing or None in fixed:
        return ""
    told = [f"{in_bytes(sum(size or 0 for size in growing))} per token"] if growing else []
    return ", ".join([*told, f"{in_bytes(sum(size or 0 for size in fixed))} fixed"] if fixed else told)


def totals_of(inventory: Inventory) -> list[str]:
    """A line with the sizes of all caches; none where nothing is known."""
    from graphpass.targets.consumers.summary import total_bytes

    totals = total_bytes(inventory)
    told = []
    if inventory.of_kind("kv") and totals.bytes_per_token is not None and totals.bytes_per_1k_tokens is not None:
        told.append(
            f"{in_bytes(totals.bytes_per_token)} per token, {in_bytes(totals.bytes_per_1k_tokens)} per 1k tokens"
        )
    if inventory.of_kind("cross") and totals.bytes_per_encoder_token is not None:
        told.append(f"{in_bytes(totals.bytes_per_encoder_token)} per token of the encoder")
    if inventory.of_kind("linear") and totals.fixed_bytes is not None:
        told.append(f"{in_bytes(totals.fixed_bytes)} fixed")
    return [f"in all, for a batch of 1: {'; '.join(told)}"] if told else []


def in_bytes(count: float) -> str:
    """A number of bytes, three digits of it: ``1.54 KB``."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
