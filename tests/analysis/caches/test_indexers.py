"""Keys by which an indexer selects the positions that attention reads, as DeepSeek-V3.2 writes them."""

from __future__ import annotations

from support.indexer_graphs import indexed_layer

import graphpass
from graphpass.analysis.caches.step_lengths import known_lengths
from graphpass.analysis.symbolic.step import PAST
from graphpass.ir.cache import Axes


def test_keys_of_an_indexer_are_a_cache():
    inventory = graphpass.analyze_caches(indexed_layer("positions"))
    cache = inventory.cache("past_key_values.0.indexer")
    assert (cache.kind, cache.role, cache.layer) == ("kv", "indexer_key", 0)
    assert cache.axes == Axes(batch=0, sequence=1, head_dim=2)
    (block,) = inventory.attention
    assert (block.key, block.value) == ("past_key_values.0.key", "past_key_values.0.value")


def test_tokens_used_to_build_a_mask_are_not_a_mask():
    model = indexed_layer("positions")
    lengths, bits = known_lengths(model, graphpass.analyze_caches(model).caches)
    assert model.graph.parameters["input_ids"].node not in bits
    assert PAST in lengths.values()


def test_selection_of_experts_is_not_an_indexer():
    cache = graphpass.analyze_caches(indexed_layer("experts")).cache("past_key_values.0.indexer")
    assert (cache.kind, cache.role) == ("unknown", "unknown")
