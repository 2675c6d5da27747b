"""Find latents: cached vectors of which weights make keys and values after they are read.

Source: DeepSeek-V2, multi-head latent attention.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.reads import attention_reads
from graphpass.analysis.attention.types import Attention
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.cache import Cache
from graphpass.ir.graph import Graph, Value
from graphpass.ir.model import Model


@dataclass(frozen=True, slots=True)
class Latents:
    """The caches of one latent attention.

    Attributes:
        attention: The attention.
        caches: The latent, and the rotated part of keys if it is kept apart.
        key: ``[batch, heads, sequence, head_dim]``; ``None`` if it has no such form.
        value: In the same layout.
    """

    attention: Attention
    caches: tuple[Cache, ...]
    key: Value | None
    value: Value | None


def find_latents(model: Model) -> tuple[Latents, ...]:
    """Return the latents of ``model`` by attention, outside of bodies."""
    graph, reads = model.graph, model.analysis(attention_reads)
    caches = analyze_caches(model).of_kind("kv")
    layers = []
    for attention in model.analysis(find_attention):
        by_cache = {
            cache: [read for read in reads.get(graph.reads[cache.read].index, ()) if read.attention == attention]
            for cache in caches
        }
        read = tuple(cache for cache, mine in by_cache.items() if mine)
        if any(place.has("weights") for mine in by_cache.values() for place in mine):
            layers.append(Latents(attention, read, _key(graph, attention), _of_rank_4(attention.value)))
    return tuple(layers)


def _key(graph: Graph, attention: Attention) -> Value | None:
    key = _of_rank_4(attention.key)
    if key is None or not attention.key_is_transposed:
        return key
    node = graph.producer(key)
    return node.source() if node.op == "Transpose" and node.attributes["order"] == (0, 1, 3, 2) else None


def _of_rank_4(value: Value | None) -> Value | None:
    return value if value is not None and value.rank == 4 else None
