"""Keys by which an indexer selects the positions that attention reads, as DeepSeek-V3.2 writes them."""

from __future__ import annotations

import numpy
import openvino
from openvino import opset13 as ops
from support.attention_graphs import integers

import graphpass
from graphpass.analysis.caches.step_lengths import known_lengths
from graphpass.analysis.symbolic.step import PAST
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.cache import Axes

SIZE = 8


def named(node: openvino.Node, name: str) -> openvino.Node:
    node.set_friendly_name(name)
    node.output(0).set_names({name})
    return node


def layer(selects: str) -> OpenVINOModel:
    """One layer; a TopK selects positions, or experts, by the products of queries and keys of an indexer."""
    ids = named(ops.parameter([-1, -1], numpy.int64), "input_ids")
    pasts = [
        named(ops.parameter([-1, 1, -1, SIZE], numpy.float32), f"past_key_values.0.{role}") for role in ("key", "value")
    ]
    past = named(ops.parameter([-1, -1, SIZE], numpy.float32), "past_key_values.0.indexer")
    table = ops.constant(numpy.random.default_rng(0).standard_normal((9, SIZE), numpy.float32))
    hidden = ops.gather(table, ops.convert(ids, "i32"), ops.constant(0))
    scored = ops.concat([past, hidden], 1)
    products = ops.matmul(ops.unsqueeze(hidden, integers(2)), ops.unsqueeze(scored, integers(1)), False, True)
    scores = ops.reduce_sum(ops.relu(products), integers(2), False)
    if selects == "experts":
        scores = ops.matmul(ops.reduce_sum(scores, integers(2), True), ops.constant(table.data[:1]), False, False)
    top = ops.topk(scores, ops.constant(2), -1, "max", "value")
    low = ops.subtract(ops.multiply(scores, ops.constant(numpy.float32(0))), ops.constant(numpy.float32(65504)))
    kept = ops.multiply(top.output(0), ops.constant(numpy.float32(0)))
    mask = ops.scatter_elements_update(low, top.output(1), kept, ops.constant(2))
    query = ops.unsqueeze(hidden, integers(1))
    keys, values = (ops.concat([stored, query], 2) for stored in pasts)
    attended = ops.scaled_dot_product_attention(query, keys, values, ops.unsqueeze(mask, integers(1)), causal=False)
    outputs = {"logits": attended, "present.0.key": keys, "present.0.value": values, "present.0.indexer": scored}
    results = [named(ops.result(output), name) for name, output in outputs.items()]
    return OpenVINOModel(openvino.Model(results, [ids, *pasts, past]))


def test_keys_of_an_indexer_are_a_cache():
    inventory = graphpass.analyze_caches(layer("positions"))
    cache = inventory.cache("past_key_values.0.indexer")
    assert (cache.kind, cache.role, cache.layer) == ("kv", "indexer_key", 0)
    assert cache.axes == Axes(batch=0, sequence=1, head_dim=2)
    (block,) = inventory.attention
    assert (block.key, block.value) == ("past_key_values.0.key", "past_key_values.0.value")


def test_tokens_used_to_build_a_mask_are_not_a_mask():
    model = layer("positions")
    lengths, bits = known_lengths(model, graphpass.analyze_caches(model).caches)
    assert model.graph.parameters["input_ids"].node not in bits
    assert PAST in lengths.values()


def test_selection_of_experts_is_not_an_indexer():
    cache = graphpass.analyze_caches(layer("experts")).cache("past_key_values.0.indexer")
    assert (cache.kind, cache.role) == ("unknown", "unknown")
