"""Summarize an inventory as a whole: total sizes, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphpass.engine.view import View

if TYPE_CHECKING:
    from graphpass.ir.cache import Inventory

__all__ = ["Totals", "total_bytes", "warnings_of"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Bytes that the caches of one sequence take; ``None`` if a size is not known.

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
    per_token = _sum(cache.bytes_per_token for cache in inventory.of_kind("kv"))
    fixed = _sum(cache.fixed_bytes for cache in inventory.of_kind("linear"))
    cross = _sum(cache.bytes_per_token for cache in inventory.of_kind("cross"))
    return Totals(per_token, None if per_token is None else 1000 * per_token, fixed, cross)


def _sum(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known else sum(size or 0 for size in known)


def warnings_of(inventory: Inventory, views: Sequence[View]) -> tuple[str, ...]:
    """Return warnings before the model is used.

    Args:
        inventory: The caches by graphpass's own analysis.
        views: The caches as others see them.

    Returns:
        One sentence each: caches of unknown kind, halves of caches, consumers that will misread.
    """
    lines = [
        f"cannot tell what {cache.name} is: {cache.evidence[-1] if cache.evidence else 'there is no evidence'}"
        for cache in inventory.caches
        if cache.kind == "unknown"
    ]
    lines += [f"input {name} looks like a past but has no present" for name in inventory.unpaired_inputs]
    lines += [f"output {name} looks like a present but has no past" for name in inventory.unpaired_outputs]
    lines += [f"{view.consumer} {reason}" for view in views if view.verdict == "misreads" for reason in view.reasons]
    return tuple(lines)
