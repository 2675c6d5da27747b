"""Attention over ``[batch * heads, length, size]``, as Bloom, XGLM and GPT-2 with upcast attention have it."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.decode import EXACT

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.attention.fuse_attention import FuseAttention

HEADS, SIZE = 4, 8
LOWEST = numpy.float32(-3.4e38)


def integers(*values):
    return ops.constant(list(values), dtype=openvino.Type.i64)


def parameter(name, shape):
    node = ops.parameter(openvino.PartialShape(shape), numpy.float32)
    node.set_friendly_name(name)
    node.output(0).set_names({name})
    return node


def merged(value, size=SIZE):
    length = ops.gather(ops.shape_of(value, "i64"), integers(2), integers(0))
    return ops.reshape(value, ops.concat([integers(-1), length, integers(size)], 0), special_zero=False)


class Merged:
    """Scores of three axes; the Softmax over four, or over three where ``softmax_rank`` is 3."""

    def __init__(self, *, alibi=False, bounded=False, softmax_rank=4, key_swapped=True, heads=HEADS):
        self.query, self.key, self.value = (
            parameter(name, [-1, heads, -1, SIZE]) for name in ("query", "key", "value")
        )
        self.mask = parameter("mask", [-1, 1, -1, -1])
        self.alibi = parameter("alibi", [-1, 1, -1])
        inputs = [self.query, self.key, self.value, self.mask, *([self.alibi] if alibi else [])]
        key = merged(self.key)
        if key_swapped:
            key = ops.transpose(key, integers(0, 2, 1))
        scores = ops.multiply(ops.matmul(merged(self.query), key, False, not key_swapped), numpy.float32(0.3))
        if alibi:
            scores = ops.add(scores, self.alibi)
        lengths = ops.gather(ops.shape_of(scores, "i64"), integers(1, 2), integers(0))
        apart = ops.reshape(scores, ops.concat([integers(-1, HEADS), lengths], 0), special_zero=False)
        apart = ops.add(apart, self.mask)
        if bounded:
            apart = ops.maximum(apart, ops.constant(LOWEST))
        together = ops.concat([integers(-1), lengths], 0)
        if softmax_rank == 3:
            weights = ops.softmax(ops.reshape(apart, together, special_zero=False), -1)
        else:
            weights = ops.reshape(ops.softmax(apart, -1), together, special_zero=False)
        product = ops.matmul(weights, merged(self.value), False, False)
        product.set_friendly_name("product")
        # The shape arithmetic behind it reads its shape too.
        rows = ops.gather(ops.shape_of(product, "i64"), integers(1), integers(0))
        split = ops.reshape(product, ops.concat([integers(-1, HEADS), rows, integers(SIZE)], 0), special_zero=False)
        split.output(0).set_names({"attended"})
        self.model = OpenVINOModel(openvino.Model([split], inputs))

    def feeds(self):
        random = numpy.random.default_rng(5)
        batch, length, sequence = 2, 3, 5
        shapes = {"query": length, "key": sequence, "value": sequence}
        given = {name: random.standard_normal((batch, HEADS, size, SIZE)) for name, size in shapes.items()}
        given["mask"] = numpy.where(random.random((batch, 1, length, sequence)) < 0.7, 0.0, LOWEST)
        given["mask"][..., 0] = 0.0
        given["alibi"] = random.standard_normal((batch * HEADS, 1, sequence))
        names = {port.get_any_name() for port in self.model.ov_model.inputs}
        return {name: value.astype(numpy.float32) for name, value in given.items() if name in names}


def attended(model, feeds):
    return openvino.Core().compile_model(model.ov_model, "CPU", EXACT)(feeds)["attended"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("softmax_rank", [3, 4])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("key_swapped", [False, True])
def test_fuses_and_computes_the_same(alibi, bounded, softmax_rank, key_swapped):
    block = Merged(alibi=alibi, bounded=bounded, softmax_rank=softmax_rank, key_swapped=key_swapped)
    feeds = block.feeds()
    result = PassManager([FuseAttention()]).run(block.model)
    assert result.records[0].result.changed
    kinds = [op.get_type_name() for op in result.model.ov_model.get_ops()]
    assert kinds.count("ScaledDotProductAttention") == 1
    assert "Softmax" not in kinds
    assert "MatMul" not in kinds
    numpy.testing.assert_allclose(attended(result.model, feeds), attended(block.model, feeds), atol=1e-5)


def test_heads_of_unknown_number_are_left():
    block = Merged(heads=-1)
    (record,) = PassManager([FuseAttention()]).run(block.model).records
    assert not record.result.changed
    assert "merges batch and heads" in record.result.notes[0]


class Upcast:
    """As GPT-2 with ``reorder_and_upcast_attn``: only query and key are merged, the key after it was transposed."""

    def __init__(self):
        self.query = parameter("query", [-1, -1, -1, SIZE])
        self.key, self.value = (parameter(name, [-1, HEADS, -1, SIZE]) for name in ("key", "value"))
        self.mask = parameter("mask", [-1, 1, -1, -1])
        swapped = ops.transpose(self.key, integers(0, 1, 3, 2))
        length = ops.gather(ops.shape_of(self.key, "i64"), integers(2), integers(0))
        key = ops.reshape(swapped, ops.concat([integers(-1, SIZE), length], 0), special_zero=False)
        key = ops.convert(key, "f32")
        scores = ops.matmul(ops.convert(merged(self.query), "f32"), key, False, False)
        zeros = ops.multiply(ops.broadcast(numpy.float32(0), ops.shape_of(scores)), numpy.float32(0))
        scores = ops.add(ops.multiply(scores, numpy.float32(0.3)), zeros)
        shape = ops.concat([integers(-1, HEADS), ops.gather(ops.shape_of(scores), integers(1, 2), integers(0))], 0)
        scores = ops.reshape(scores, shape, special_zero=False)
        # The mask is cut to the length of the key as the product reads it.
        stop = ops.gather(ops.shape_of(key, "i64"), integers(-1), integers(0))
        mask = ops.slice(self.mask, integers(0), stop, integers(1), integers(3))
        product = ops.matmul(ops.softmax(ops.add(scores, mask), -1), self.value, False, False)
        product.output(0).set_names({"attended"})
        inputs = [self.query, self.key, self.value, self.mask]
        self.model = OpenVINOModel(openvino.Model([ops.result(product)], inputs))


def test_only_query_and_key_are_merged():
    block = Upcast()
    result = PassManager([FuseAttention()]).run(block.model)
    assert result.records[0].result.notes == ()
    kinds = [op.get_type_name() for op in result.model.ov_model.get_ops()]
    assert kinds.count("ScaledDotProductAttention") == 1
    random = numpy.random.default_rng(3)
    feeds = {name: random.standard_normal((2, HEADS, 5, SIZE), numpy.float32) for name in ("query", "key", "value")}
    feeds["mask"] = numpy.where(random.random((2, 1, 5, 9)) < 0.7, 0, LOWEST).astype(numpy.float32)
    feeds["mask"][..., 0] = 0
    numpy.testing.assert_allclose(attended(result.model, feeds), attended(block.model, feeds), atol=1e-5)


def test_readers_of_the_old_length_read_the_key():
    """Another reader of the cache's Concat would keep the CPU plugin from fusing it."""
    after = PassManager([FuseAttention()]).run(Upcast().model).model.ov_model
    (key,) = [op for op in after.get_ops() if op.get_friendly_name() == "key"]
    living = {op.get_name() for op in after.get_ops()}
    readers = [reader.get_node() for reader in key.output(0).get_target_inputs()]
    found = {node.get_type_name() for node in readers if node.get_name() in living}
    assert found == {"ScaledDotProductAttention", "ShapeOf"}


def test_shapes_of_merged_heads_are_unchanged():
    """Nothing else has batch times heads."""
    block = Upcast()
    rows = [op for op in block.model.ov_model.get_ops() if op.get_type_name() == "Convert"]
    shapes = [ops.gather(ops.shape_of(node, "i64"), integers(0, 2), integers(0)) for node in rows]
    for shape, name in zip(shapes, ("first", "second"), strict=True):
        shape.output(0).set_names({name})
    block.model.ov_model.add_results([ops.result(shape) for shape in shapes])
    after = PassManager([FuseAttention()]).run(block.model).model.ov_model
    feeds = {name: numpy.ones((2, HEADS, 5, SIZE), numpy.float32) for name in ("query", "key", "value")}
    feeds["mask"] = numpy.zeros((2, 1, 5, 5), numpy.float32)
    found = openvino.Core().compile_model(after, "CPU", EXACT)(feeds)
    assert sorted([list(found["first"]), list(found["second"])]) == [[2 * HEADS, 5], [2 * HEADS, SIZE]]
