"""Total memory of caches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphpass.ir.cache import Inventory


@dataclass(frozen=True, slots=True)
class Totals:
    """Total memory of caches for one sequence, in bytes; ``None`` if unknown.

    Attributes:
        bytes_per_token: Size of the ``kv`` caches for each token.
        bytes_per_1k_tokens: Size of the ``kv`` caches for 1,000 tokens.
        fixed_bytes: Size of the ``linear`` caches, independent of the sequence length.
        bytes_per_encoder_token: Size of the ``cross`` caches for each token of the encoder.
    """

    bytes_per_token: int | None
    bytes_per_1k_tokens: int | None
    fixed_bytes: int | None
    bytes_per_encoder_token: int | None


def total_bytes(inventory: Inventory) -> Totals:
    """Return the total sizes of all caches for batch size 1."""
    per_token = known_sum(cache.bytes_per_token for cache in inventory.of_kind("kv"))
    fixed = known_sum(cache.fixed_bytes for cache in inventory.of_kind("linear"))
    cross = known_sum(cache.bytes_per_token for cache in inventory.of_kind("cross"))
    return Totals(per_token, None if per_token is None else 1000 * per_token, fixed, cross)


def known_sum(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of ``sizes``; ``None`` if a size is ``None``."""
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)
