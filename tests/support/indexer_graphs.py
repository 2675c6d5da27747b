"""A layer whose attention reads positions that an indexer selects, as DeepSeek-V3.2 has."""

from __future__ import annotations

import numpy
import openvino
from openvino import opset13 as ops

from graphpass.dialects.openvino.model import OpenVINOModel
from support.attention_graphs import integers

SIZE = 8


def named(node: openvino.Node, name: str) -> openvino.Node:
    node.set_friendly_name(name)
    node.output(0).set_names({name})
    return node


def indexed_layer(selects: str) -> OpenVINOModel:
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
