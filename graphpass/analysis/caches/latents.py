"""Find latents: cached vectors from which weights compute keys and values in each step.

Source: DeepSeek-V2, multi-head latent attention.
"""

from __future__ import annotations

from collections import defaultdict
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
        caches: The latent, and the rotary part of the keys if it is cached separately.
        key: ``[batch, heads, sequence, head_dim]``; ``None`` for another layout.
        value: The value in the same layout.
    """

    attention: Attention
    caches: tuple[Cache, ...]
    key: Value | None
    value: Value | None


def find_latents(model: Model) -> tuple[Latents, ...]:
    """Return the latents of each latent attention outside of bodies, in execution order."""
    graph, reads = model.graph, model.analysis(attention_reads)
    caches: defaultdict[int, dict[Cache, None]] = defaultdict(dict)
    weighted: set[int] = set()
    for cache in analyze_caches(model).of_kind("kv"):
        for read in reads.get(graph.reads[cache.read].index, ()):
            caches[read.attention.node.index][cache] = None
            if read.has("weights"):
                weighted.add(read.attention.node.index)
    return tuple(
        Latents(attention, tuple(caches[index]), _key(graph, attention), _of_rank_4(attention.value))
        for attention in model.analysis(find_attention)
        if (index := attention.node.index) in weighted
    )


def _key(graph: Graph, attention: Attention) -> Value | None:
    key = _of_rank_4(attention.key)
    if key is None or not attention.key_is_transposed:
        return key
    node = graph.producer(key)
    return node.source() if node.op == "Transpose" and node.attributes["order"] == (0, 1, 3, 2) else None


def _of_rank_4(value: Value | None) -> Value | None:
    return value if value is not None and value.rank == 4 else None
