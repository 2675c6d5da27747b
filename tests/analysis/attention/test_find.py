"""What counts as attention, and why some of it is not plain."""

from __future__ import annotations

import re

import numpy
import onnx
import openvino
import pytest
from analysis.attention.plain_attention import F32, PlainAttention, number
from onnx import helper
from openvino import opset13 as ops
from support.attention_graphs import integers
from support.models import export

from graphpass import PassManager, parse, verify
from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.lengths.past_order import past_order
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.io import load
from graphpass.testing import tiny_model


class SoftCap(PlainAttention):
    def scores(self, product):
        capped = ops.multiply(ops.tanh(ops.divide(product, number(50.0))), number(50.0))
        return ops.add(capped, self.mask)


class AddsAlmostNothing(PlainAttention):
    """Zeros that make more rows of one."""

    def __init__(self):
        super().__init__()
        self.query = ops.parameter([1, 4, 1, 8], numpy.float32)

    def scores(self, product):
        return ops.add(product, ops.constant(numpy.zeros([1, 4, 3, 1]), dtype=F32))


class TwoProducts(PlainAttention):
    def scores(self, product):
        other = ops.matmul(self.key, self.query, False, True)
        return ops.add(product, ops.transpose(other, integers(0, 1, 3, 2)))

    def product(self):
        return ops.add(super().product(), ops.matmul(self.query, self.key, False, True))


class SubtractedScores(PlainAttention):
    def scores(self, product):
        return ops.subtract(self.mask, product)


class WeightsAreAnOutput(PlainAttention):
    def after(self, weights):
        self.results.append(weights)
        return weights


class ScoresAreReadTwice(PlainAttention):
    """By the logarithm of their sum, which scales the result in granite_swa."""

    def scores(self, product):
        scores = super().scores(product)
        self.results.append(ops.log(ops.reduce_sum(ops.exp(scores), integers(-1), False)))
        return scores


class WeightsAreReadTwice(PlainAttention):
    def after(self, weights):
        self.results.append(ops.reduce_sum(weights, integers(-1), False))
        return weights


class OtherAxis(PlainAttention):
    def weights(self, scores):
        return ops.softmax(scores, -2)


class Rank3(PlainAttention):
    rank = 3


class SmallFill(PlainAttention):
    fill = -10.0

    def scores(self, product):
        return ops.select(ops.greater(self.mask, number(0.0)), product, number(self.fill))


class UnknownFill(PlainAttention):
    def scores(self, product):
        return ops.select(ops.greater(self.mask, number(0.0)), product, self.mask)


class RoundedScores(PlainAttention):
    def scores(self, product):
        return ops.convert(ops.convert(product, "i32"), "f32")


class RoundedWeights(PlainAttention):
    def after(self, weights):
        return ops.convert(ops.convert(ops.multiply(weights, number(255.0)), "u8"), "f32")


class QuantizedWeights(PlainAttention):
    def after(self, weights):
        return ops.fake_quantize(weights, *map(number, (0.0, 1.0, 0.0, 1.0)), 256)


class MaskAfterSoftmax(PlainAttention):
    def after(self, weights):
        return ops.multiply(weights, self.mask)


class ScoresScaledPerHead(PlainAttention):
    def scores(self, product):
        return ops.multiply(product, ops.constant(numpy.ones([4, 1, 1]), dtype=F32))


class DropsToMask(PlainAttention):
    """One query row, and a mask that makes several of it."""

    def __init__(self):
        super().__init__()
        self.query = ops.parameter([1, 4, 1, 8], numpy.float32)
        self.mask = ops.parameter([2, 1, 3, 5], numpy.float32)


class FilledThenScaled(PlainAttention):
    def scores(self, product):
        kept = ops.select(ops.greater(self.mask, number(0.0)), product, number(-1e4))
        return ops.multiply(kept, number(0.01))


class WideMask(PlainAttention):
    """A mask with another dimension."""

    def __init__(self):
        super().__init__()
        self.mask = ops.parameter([2, 2, 1, -1, -1], numpy.float32)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (SoftCap, "soft-capped .at Tanh"),
        (AddsAlmostNothing, "more elements than its scores"),
        (TwoProducts, "joins two products"),
        (SubtractedScores, "subtracts its scores"),
        (WeightsAreAnOutput, "have several users"),
        (WeightsAreReadTwice, "have several users"),
        (ScoresAreReadTwice, "its scores have several users"),
        (OtherAxis, "not over the last axis"),
        (Rank3, "merges batch and heads, and is not a Reshape of 4 dimensions"),
        (SmallFill, "other than a large negative number"),
        (UnknownFill, "other than a large negative number"),
        (FilledThenScaled, "other than a large negative number"),
        (RoundedScores, "Convert is between its scores and its Softmax"),
        (RoundedWeights, "is between its Softmax and the value"),
        (QuantizedWeights, "FakeQuantize rounds to integers; quantize the model without"),
        (MaskAfterSoftmax, "Multiply is between its Softmax and the value"),
        (ScoresScaledPerHead, "Multiply is between its scores and its Softmax"),
        (DropsToMask, "more elements than its scores"),
        (WideMask, "dimensions, not 4"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_miss_names_its_reason(block, reason):
    (attention,) = block().found()
    assert attention.miss is not None
    assert re.search(reason, str(attention.miss))
    assert attention.query is None


def test_plain_attention_is_found():
    (attention,) = PlainAttention().found()
    assert attention.miss is None
    assert not attention.is_fused
    assert not attention.key_is_transposed
    assert len(attention.masks) == 1
    assert attention.query is not None
    assert attention.query.rank == 4


class OtherMaximum(PlainAttention):
    """Not of each row."""

    def scores(self, product):
        return ops.subtract(product, ops.reduce_max(product, integers(-2), True))


class OtherRowsMaximum(PlainAttention):
    """Of something else."""

    def scores(self, product):
        return ops.subtract(product, ops.reduce_max(ops.multiply(product, number(2.0)), integers(-1), True))


class Shifted(PlainAttention):
    def scores(self, product):
        masked = super().scores(product)
        return ops.subtract(masked, ops.reduce_max(masked, integers(-1), True))


class PlusZeros(PlainAttention):
    """As PyTorch's baddbmm is exported."""

    def scores(self, product):
        zeros = ops.broadcast(number(0.0), ops.shape_of(product))
        return super().scores(
            ops.add(ops.add(product, ops.multiply(zeros, number(0.0))), ops.multiply(number(0.0), product))
        )


class MinusZeros(PlainAttention):
    def scores(self, product):
        return super().scores(ops.subtract(product, ops.constant(numpy.zeros([1, 1, 1, 1]), dtype=F32)))


class BroadcastToMore(PlainAttention):
    """One row that is broadcast to more."""

    def __init__(self):
        super().__init__()
        self.query = ops.parameter([1, 4, 1, 8], numpy.float32)

    def scores(self, product):
        return ops.add(ops.broadcast(product, integers(1, 4, 3, 1), "BIDIRECTIONAL"), self.mask)


def test_rows_broadcast_to_more_are_not_scores():
    assert not BroadcastToMore().found()


@pytest.mark.parametrize("block", [OtherMaximum, OtherRowsMaximum])
def test_another_maximum_is_a_mask(block):
    (attention,) = block().found()
    assert attention.miss is None
    assert attention.masks[0].is_subtracted


class PlusZerosFolded(PlainAttention):
    """What OpenVINO makes of ``PlusZeros``; observed with GPT-NeoX Japanese, converted by 2026.4.1."""

    def scores(self, product):
        sizes = ops.maximum(ops.shape_of(product), ops.shape_of(self.mask))
        return super().scores(ops.broadcast(product, sizes, "BIDIRECTIONAL"))


@pytest.mark.parametrize("block", [Shifted, PlusZeros, PlusZerosFolded, MinusZeros])
def test_terms_that_a_softmax_cancels_are_ignored(block):
    (attention,) = block().found()
    assert attention.miss is None
    assert len(attention.masks) == 1
    assert attention.masks[0].value.shape == (None, 1, None, None)


class Router(PlainAttention):
    def product(self):
        return ops.matmul(self.query, ops.constant(numpy.ones([8, 8]), dtype=F32), False, False)

    def scores(self, product):
        return product


class Classifier(PlainAttention):
    def scores(self, product):
        return ops.reduce_sum(product, integers(-1), True)

    def result(self, weights):
        return weights


class WeightedWeights(PlainAttention):
    """A Softmax between two products with weights, one of them dequantized."""

    def product(self):
        weight = ops.convert(ops.constant(numpy.ones([8, 8]), dtype=openvino.Type.u8), "f32")
        weight = ops.multiply(number(0.1), ops.subtract(weight, number(3.0)))
        return ops.matmul(self.query, weight, False, False)

    def scores(self, product):
        return product


class SoftmaxOverWeights(PlainAttention):
    """Normalized weights that then multiply an activation."""

    def product(self):
        return ops.constant(numpy.ones([4, 8, 8]), dtype=F32)

    def scores(self, product):
        return product


@pytest.mark.parametrize("block", [Router, Classifier, WeightedWeights, SoftmaxOverWeights])
def test_other_graphs_hold_no_attention(block):
    assert block().found() == ()


class ConstantScaleOnTheLeft(PlainAttention):
    def product(self):
        query = ops.multiply(number(0.3), self.query)
        key = ops.multiply(ops.constant([[[[0.3]]]], dtype=F32), self.key)
        return ops.matmul(query, key, False, True)


def test_a_constant_on_the_left_does_not_make_an_operand_a_weight():
    (attention,) = ConstantScaleOnTheLeft().found()
    assert attention.miss is None
    assert len(attention.scales) == 2


class OneElement(PlainAttention):
    """Everything has one element, the scores too."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (ops.parameter([1, 1, 1, 8], numpy.float32) for _ in range(3))
        self.mask = ops.parameter([1, 1, 1, 1], numpy.float32)

    def scores(self, product):
        return ops.multiply(ops.constant([[[[0.3]]]], dtype=F32), ops.add(self.mask, product))


def test_scores_of_one_element_are_scaled():
    (attention,) = OneElement().found()
    assert attention.miss is None
    assert [scale.value.name for scale in attention.scales] != []


@pytest.mark.parametrize(
    ("name", "variant", "file", "count"),
    [
        ("llama", "onnx", "model.onnx", 2),
        ("gpt2", "onnx", "model.onnx", 2),
        ("qwen3_moe", "onnx", "model.onnx", 2),
        ("gemma3_text", "onnx", "model.onnx", 4),
        ("t5", "onnx", "decoder_with_past_model.onnx", 4),
        ("whisper", "onnx", "encoder_model.onnx", 2),
        ("llama", "ov-stateful", "openvino_model.xml", 2),
        ("llama", "onnx-genai", "model.onnx", 2),
    ],
)
def test_attention_of_exports_is_found(name, variant, file, count):
    found = find_attention(load(export(name, variant) / file))
    assert len(found) == count
    assert [attention.miss for attention in found] == [None] * count


def test_mamba_has_no_attention():
    assert find_attention(load(export("mamba", "onnx-raw"))) == ()


def test_rounded_operands_leave_the_kind_of_caches():
    """QDQ models round scores, probabilities, keys and values to few bits, and back."""
    model = load(export("llama", "onnx") / "model.onnx").clone()
    rewriter, graph = model.rewriter(), model.graph
    products = [node for node in graph.of_op("MatMul") if node.outputs[0].rank == 4]
    for node in products:
        write = rewriter.under(f"{node.name}/rounded")
        scale, zero = write.number(0.02, "f32", "scale"), write.number(128, "u8", "zero")
        for port in range(2):
            rounded = write.op("QuantizeLinear", node.source(port), scale, zero, label=f"few_bits_{port}")
            rewriter.redirect(node, port, write.op("DequantizeLinear", rounded, scale, zero, label=f"back_{port}"))
    rewriter.finish()
    inventory = analyze_caches(model)
    assert len(products) == 4
    assert [cache.kind for cache in inventory.caches] == ["kv"] * 4
    assert past_order(model) == "any"
    assert not any(block.fusable for block in inventory.attention)
    assert all("QuantizeLinear" in (block.reason or "") for block in inventory.attention)


def test_flattened_scores_are_fused_and_proven():
    """ONNX's converter to opset 13 or later flattens the operand of a Softmax whose rank it does not know."""
    model = tiny_model("llama")
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    nodes = []
    for node in model.proto.graph.node:
        if node.op_type != "Softmax":
            nodes.append(node)
            continue
        (scores,), (weights,) = node.input, node.output
        nodes += [
            helper.make_node("Shape", [scores], [f"{scores}/shape"]),
            helper.make_node("Flatten", [scores], [f"{scores}/flat"], axis=3),
            helper.make_node("Softmax", [f"{scores}/flat"], [f"{weights}/flat"]),
            helper.make_node("Reshape", [f"{weights}/flat", f"{scores}/shape"], [weights]),
        ]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    result = PassManager(parse("fuse-group-query-attention")).run(OnnxModel(proto)).model
    assert len(list(result.graph.of_op("GroupQueryAttention"))) == 2
    assert verify(model, OnnxModel(proto), steps=1).is_proven
