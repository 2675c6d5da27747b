"""Assign caches to attention blocks, and add windows to the evidence of caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from graphpass.analysis.attention.attributes import attention_details
from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.caches.pairs import Pair
from graphpass.analysis.caches.step_lengths import step_elements
from graphpass.analysis.caches.updates import find_updates, kept_positions
from graphpass.ir.cache import TRIM_NOTE, AttentionBlock, Cache
from graphpass.ir.graph import Graph
from graphpass.ir.model import Model

Readers = dict[str, tuple[int, ...]]
"""Node indices of the attention that reads each cache, by the name of the cache's read."""


def attention_blocks(
    model: Model, caches: Sequence[Cache], readers: Readers, pairs: Sequence[Pair]
) -> tuple[AttentionBlock, ...]:
    """Return all attention blocks of ``model``, in execution order.

    Args:
        model: A model without bodies, see `graphpass.ir.bodies.inlined`.
        caches: Its caches.
        readers: Attention of each cache; blocks without an entry get no cache.
        pairs: Its carried tensors, whose updates determine windows in the state.
    """
    by_name = {pair.read.name: pair for pair in pairs}
    # The plugin that requires this form reads caches from slot 0, although the graph slices them from slot 1.
    cut = () if model.read_note(TRIM_NOTE) is not None else caches
    windows = {
        cache.name: window
        for cache in cut
        if cache.kind == "kv" and cache.read in by_name
        for window in [_state_window(model.graph, by_name[cache.read])]
        if window is not None
    }
    of_node: dict[int, list[Cache]] = {}
    for cache in caches:
        for index in readers.get(cache.read, ()):
            of_node.setdefault(index, []).append(cache)
    return tuple(
        _with_caches(block, of_node.get(attention.node.index, []), windows)
        for attention, block in zip(
            model.analysis(find_attention), attention_details(model, step_elements(model, caches)), strict=True
        )
    )


def beyond_reach(blocks: Sequence[AttentionBlock], model: Model) -> tuple[AttentionBlock, ...]:
    """Mark ``blocks`` in bodies, which passes do not reach, as not fusable.

    Args:
        blocks: Blocks of the model with inlined bodies.
        model: The model with bodies.

    Returns:
        All blocks in the same order; only decomposed blocks are marked.
    """
    reached = {attention.node.name for attention in model.analysis(find_attention)}
    reason = "it is in the body of a loop or branch"
    return tuple(
        block
        if block.node in reached or block.form != "decomposed" or not block.fusable
        else replace(block, fusable=False, reason=reason)
        for block in blocks
    )


def with_windows(caches: Sequence[Cache], blocks: Sequence[AttentionBlock]) -> tuple[Cache, ...]:
    """Add evidence to caches that store more positions than the windows of their readers.

    Args:
        caches: The caches; only ``kv`` caches get this evidence.
        blocks: All attention blocks, which name the caches that they read.

    Returns:
        All caches in the same order.
    """
    windows: dict[str, set[int | None]] = {}
    for block in blocks:
        for name in {block.key, block.value} - {None}:
            windows.setdefault(str(name), set()).add(block.window if block.window_in == "mask" else None)
    noted = []
    for cache in caches:
        mine = windows.get(cache.name, {None})
        if cache.kind == "kv" and None not in mine:
            widest = max(window for window in mine if window is not None)
            line = f"a window of {widest} in the mask only; the cache keeps all positions"
            cache = replace(cache, evidence=(*cache.evidence, line))
        noted.append(cache)
    return tuple(noted)


def _state_window(graph: Graph, pair: Pair) -> int | Literal["unknown"] | None:
    for update in find_updates(graph, pair):
        kept = kept_positions(graph, update)
        if kept is not None:
            return kept[1] if kept[1] is not None else "unknown"
    return None


def _with_caches(
    block: AttentionBlock, mine: Sequence[Cache], windows: dict[str, int | Literal["unknown"]]
) -> AttentionBlock:
    key = next((cache for cache in mine if cache.role in {"key", "cross_key"}), None)
    value = next((cache for cache in mine if cache.role in {"value", "cross_value"}), None)
    if key is None and value is None:
        # One cache stores keys and values.
        key = value = next(
            (cache for cache in mine if cache.kind in {"kv", "cross"} and cache.role != "indexer_key"), None
        )
    layers = {cache.layer for cache in mine} - {None}
    if key is not None:
        block = replace(block, key=key.name)
        if key.axes.heads is not None:
            heads, size = key.size(key.axes.heads), key.size(key.axes.head_dim)
            block = replace(block, key_heads=heads or block.key_heads, head_dim=block.head_dim or size)
        if (kept := windows.get(key.name)) is not None:
            window = kept if isinstance(kept, int) and block.window is None else block.window
            block = replace(block, window=window, window_in="state")
    if value is not None:
        block = replace(block, value=value.name)
        if block.value_head_dim is None and value.axes.heads is not None:
            block = replace(block, value_head_dim=value.size(value.axes.head_dim))
    return replace(block, layer=layers.pop() if len(layers) == 1 else None)
