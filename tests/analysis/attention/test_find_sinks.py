"""Which attention sinks are recognised, and why others are not."""

from __future__ import annotations

import re

import numpy
import openvino
import pytest
from analysis.attention.plain_attention import F32, PlainAttention, number
from openvino import opset13 as ops
from support.attention_graphs import integers


class Sink(PlainAttention):
    """Its parts may be replaced too."""

    last = True
    shape: tuple[int, ...] = (1, 4, 1, 1)

    def learned(self, rows):
        return ops.broadcast(ops.constant(numpy.ones(self.shape), dtype=F32), rows)

    def scores(self, product):
        learned = self.learned(ops.shape_of(ops.reduce_max(product, integers(-1), True)))
        return ops.concat([product, learned] if self.last else [learned, product], self.rank - 1)

    def after(self, weights):
        bounds = (0, -1) if self.last else (1, 2**31 - 1)
        return ops.slice(weights, *(integers(bound) for bound in bounds), integers(1), integers(-1))


class SlicedWeights(PlainAttention):
    after = Sink.after
    last = True


class SinkThatIsKept(Sink):
    def after(self, weights):
        return weights


class SinkWhoseNeighbourIsDropped(Sink):
    def after(self, weights):
        return ops.slice(weights, integers(1), integers(2**31 - 1), integers(1), integers(-1))


class SinkDroppedAlongRows(Sink):
    def after(self, weights):
        return ops.slice(weights, integers(0), integers(-1), integers(1), integers(2))


class SinkDroppedWithMore(Sink):
    def after(self, weights):
        return ops.slice(weights, integers(0), integers(-2), integers(1), integers(3))


class EveryOtherColumn(Sink):
    def after(self, weights):
        return ops.slice(weights, integers(0), integers(-1), integers(2), integers(3))


class SinkDroppedTwice(Sink):
    def after(self, weights):
        return super().after(super().after(weights))


class StridedOverRows(Sink):
    def after(self, weights):
        ends = [ops.constant([0, 0, bound, -1], dtype=openvino.Type.i64) for bound in (1, 0)]
        ends[1] = integers(0, 0, 0, -1)
        return ops.strided_slice(weights, *ends, integers(1, 1, 1, 1), [1, 1, 0, 1], [1, 1, 1, 0])


class SinkThatIsRead(Sink):
    """The column that a split takes off is used."""

    def after(self, weights):
        parts = ops.variadic_split(weights, integers(3), integers(-1, 1))
        self.results.append(ops.relu(parts.output(1)))
        return parts.output(0)


class TwoColumns(Sink):
    def learned(self, rows):
        return ops.concat([super().learned(rows)] * 2, 3)


class SinkOfEachRow(Sink):
    def learned(self, rows):
        return ops.broadcast(ops.reduce_max(self.mask, integers(-1), True), rows)


class SinkOnRows(Sink):
    def scores(self, product):
        return ops.concat([product, ops.reduce_max(product, integers(-2), True)], 2)


class ScaledSink(Sink):
    def scores(self, product):
        return ops.multiply(super().scores(product), number(0.5))


class MaskedSink(Sink):
    def scores(self, product):
        return ops.add(super().scores(product), self.mask)


class ShiftedBesideSink(Sink):
    """The maximum is that of the scores without the sink."""

    def scores(self, product):
        return super().scores(ops.subtract(product, ops.reduce_max(product, integers(-1), True)))


class TwoSinks(Sink):
    def scores(self, product):
        return super().scores(super().scores(product))


class ScoresOfTwoProducts(PlainAttention):
    def scores(self, product):
        return ops.concat([product, product], 3)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (SlicedWeights, "a column of its probabilities is dropped, but its scores have no attention sink"),
        (SinkThatIsKept, "an attention sink that is not dropped"),
        (SinkWhoseNeighbourIsDropped, "an attention sink that is the last column, while the first is dropped"),
        (SinkDroppedAlongRows, "an attention sink that is not just dropped .at Slice"),
        (SinkDroppedWithMore, "an attention sink that is not just dropped .at Slice"),
        (EveryOtherColumn, "an attention sink that is not just dropped .at Slice"),
        (StridedOverRows, "an attention sink that is not just dropped .at StridedSlice"),
        (SinkDroppedTwice, "Slice lies between its Softmax and the value"),
        (SinkThatIsRead, "an attention sink that is not just dropped .at VariadicSplit"),
        (TwoColumns, "an attention sink of more than one column"),
        (SinkOfEachRow, "an attention sink that is not one number for each head"),
        (SinkOnRows, "is not added on the last of four axes"),
        (ScaledSink, "an attention sink that is scaled or masked along"),
        (MaskedSink, "an attention sink that is scaled or masked along"),
        (TwoSinks, "an attention sink beside another one"),
        (ScoresOfTwoProducts, "joins more than its scores and an attention sink"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_miss_names_its_reason(block, reason):
    (attention,) = block().found()
    assert attention.miss is not None
    assert re.search(reason, str(attention.miss))
    assert attention.sink is None


class FirstSink(Sink):
    last = False


class SharedSink(Sink):
    shape = ()


@pytest.mark.parametrize("block", [Sink, FirstSink, SharedSink])
def test_sinks_are_found(block):
    (attention,) = block().found()
    assert attention.miss is None
    assert attention.sink is not None
    assert attention.sink.shape == block.shape


def test_a_sink_is_not_seen_by_a_maximum_taken_before_it():
    """Softmax does not see what is subtracted from all columns; from the scores alone, it does."""
    (attention,) = ShiftedBesideSink().found()
    assert attention.miss is not None
    assert attention.miss.node.op == "Subtract"
    assert attention.miss.reason == "an attention sink beside scores whose maximum was subtracted"
