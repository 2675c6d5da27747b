"""Sum up the bytes of caches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphpass.ir.cache import Inventory


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums up the bytes of caches for one sequence; ``None`` if unknown.

    Attributes:
        bytes_per_token: Growth of the kv caches by each token.
        bytes_per_1k_tokens: Growth by a thousand tokens.
        fixed_bytes: Size of the linear caches, however long the sequence.
        bytes_per_encoder_token: Growth of the cross caches by each token of the encoder.
    """

    bytes_per_token: int | None
    bytes_per_1k_tokens: int | None
    fixed_bytes: int | None
    bytes_per_encoder_token: int | None


def total_bytes(inventory: Inventory) -> Totals:
    """Return the sizes of all caches for a batch of one."""
    per_token = known_sum(cache.bytes_per_token for cache in inventory.of_kind("kv"))
    fixed = known_sum(cache.fixed_bytes for cache in inventory.of_kind("linear"))
    cross = known_sum(cache.bytes_per_token for cache in inventory.of_kind("cross"))
    return Totals(per_token, None if per_token is None else 1000 * per_token, fixed, cross)


def known_sum(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of ``sizes``; ``None`` if one is unknown."""
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)
