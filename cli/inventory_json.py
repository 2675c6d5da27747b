"""What a model holds, as JSON; ``graphpass/reports/schemas/inspect.json`` describes it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphpass.engine.view import View
    from graphpass.ir.cache import Cache, Inventory
    from graphpass.ir.model import Model
    from graphpass.ir.types import Dimension, Port

__all__ = ["as_json"]


def as_json(model: Model, inventory: Inventory, views: Sequence[View]) -> dict[str, Any]:
    """The object that ``inspect --format json`` prints."""
    from graphpass.dialects.openvino.runtime_options import runtime_options
    from graphpass.targets.consumers.summary import total_bytes, warnings_of

    return {
        "format": model.dialect,
        "kind": inventory.kind,
        "stateful": inventory.stateful,
        "caches": [_cache(cache) for cache in inventory.caches],
        "attention": [asdict(block) for block in inventory.attention],
        "inputs": [_port(port) for port in model.inputs],
        "outputs": [_port(port) for port in model.outputs],
        "runtime_options": runtime_options(model),
        "totals": asdict(total_bytes(inventory)),
        "views": [asdict(view) for view in views],
        "warnings": list(warnings_of(inventory, views)),
        "unpaired_inputs": list(inventory.unpaired_inputs),
        "unpaired_outputs": list(inventory.unpaired_outputs),
    }


def _cache(cache: Cache) -> dict[str, Any]:
    told = asdict(cache) | {"shape": _numbers(cache.shape)}
    return told | {
        "index": cache.index,
        "bytes_per_token": cache.bytes_per_token,
        "fixed_bytes": cache.fixed_bytes,
    }


def _port(port: Port) -> dict[str, Any]:
    return asdict(port) | {"shape": _numbers(port.shape)}


def _numbers(shape: tuple[Dimension, ...] | None) -> list[int | None] | None:
    """Fixed sizes; the names of symbols are an exporter's own."""
    return None if shape is None else [size if isinstance(size, int) else None for size in shape]
