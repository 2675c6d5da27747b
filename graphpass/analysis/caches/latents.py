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
from graphpass.ir.model import Model


@dataclass(frozen=True, slots=True)
class Latents:
    """The caches of one latent attention.

    Attributes:
        attention: The attention.
        caches: The latent, and the rotated part of keys if it is kept apart.
    """

    attention: Attention
    caches: tuple[Cache, ...]


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
            layers.append(Latents(attention, read))
    return tuple(layers)
