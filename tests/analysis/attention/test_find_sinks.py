"""Which attention sinks are recognized, and why others are not."""

from __future__ import annotations

import re

import numpy
import openvino
import pytest
from analysis.attention.plain_attention import F32, PlainAttention, number
from openvino import opset13 as ops
from support.attention_graphs import integers

from graphpass.analysis.attention.find import Scores, find_attention, read_scores


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
        (SinkThatIsKept, "column of its attention sink is not dropped"),
        (SinkWhoseNeighbourIsDropped, "its attention sink is the last column of its scores, but the first is dropped"),
        (SinkDroppedAlongRows, "exactly the first or last column of its probabilities .at Slice"),
        (SinkDroppedWithMore, "exactly the first or last column of its probabilities .at Slice"),
        (EveryOtherColumn, "exactly the first or last column of its probabilities .at Slice"),
        (StridedOverRows, "exactly the first or last column of its probabilities .at StridedSlice"),
        (SinkDroppedTwice, "Slice is between its Softmax and the value"),
        (SinkThatIsRead, "exactly the first or last column of its probabilities .at VariadicSplit"),
        (TwoColumns, "its attention sink has more than one column"),
        (SinkOfEachRow, "its attention sink is not one value per head"),
        (SinkOnRows, "is not joined along the last of four axes"),
        (ScaledSink, "its attention sink is scaled or masked together"),
        (MaskedSink, "its attention sink is scaled or masked together"),
        (TwoSinks, "it has two attention sinks"),
        (ScoresOfTwoProducts, "does not join its scores and one attention sink"),
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
    assert attention.miss.reason == "its row maximum is subtracted from its scores, but not from its attention sink"


def test_masks_beside_a_sink_of_each_row_are_read():
    model = SinkOfEachRow().built()
    (attention,) = find_attention(model)
    scores = read_scores(model.graph, attention.node)
    assert isinstance(scores, Scores)
    assert scores.sink is not None
