"""A plain attention block whose parts a test replaces, and what the analysis finds in it."""

from __future__ import annotations

import numpy
import openvino
from openvino import opset13 as ops

from graphpass.analysis.attention.find import find_attention
from graphpass.analysis.attention.types import Attention
from graphpass.dialects.openvino.model import OpenVINOModel

F32 = openvino.Type.f32


class PlainAttention:
    """A plain attention block whose parts a test replaces."""

    rank = 4

    def __init__(self) -> None:
        shape = [-1, 4, -1, 8][-self.rank :]
        self.query, self.key, self.value = (ops.parameter(shape, numpy.float32) for _ in range(3))
        self.mask = ops.parameter([-1, 1, -1, -1][-self.rank :], numpy.float32)
        self.results: list[openvino.Node] = []

    def product(self) -> openvino.Node:
        return ops.matmul(self.query, self.key, False, True)

    def scores(self, product: openvino.Node) -> openvino.Node:
        return ops.add(product, self.mask)

    def weights(self, scores: openvino.Node) -> openvino.Node:
        return ops.softmax(scores, -1)

    def after(self, weights: openvino.Node) -> openvino.Node:
        return weights

    def result(self, weights: openvino.Node) -> openvino.Node:
        return ops.matmul(weights, self.value, False, False)

    def built(self) -> OpenVINOModel:
        last = self.result(self.after(self.weights(self.scores(self.product()))))
        inputs = [self.query, self.key, self.value, self.mask]
        model = openvino.Model([ops.result(node) for node in [last, *self.results]], inputs)
        return OpenVINOModel(model)

    def found(self) -> tuple[Attention, ...]:
        return find_attention(self.built())


def number(value: float) -> openvino.Node:
    return ops.constant(value, dtype=F32)
