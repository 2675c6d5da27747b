"""Attention sinks that are written as a gate of the result."""

from __future__ import annotations

from typing import Any

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import fused, infer

from graphpass.analysis.attention.find import find_sink_gates
from graphpass.dialects.openvino.model import OpenVINOModel

HEADS, SIZE = 4, 8


def gated(
    *, negated: bool = False, axis: int = -1, of: str = "masked", further: bool = False, by: str = "heads"
) -> openvino.Model:
    """Build ``softmax(scores) @ value * sigmoid(logsumexp(scores) - sink)``, as OpenVINO's frontends write it."""
    operands = ("query", "key", "value")
    inputs = {name: ops.parameter([-1, HEADS, -1, SIZE], numpy.float32, name=name) for name in operands}
    inputs["seen"] = ops.parameter([-1, 1, -1, -1], numpy.bool_, name="seen")
    product = ops.multiply(ops.matmul(inputs["query"], inputs["key"], False, True), numpy.float32(0.3))
    scores = ops.add(product, ops.select(inputs["seen"], numpy.float32(0), numpy.finfo(numpy.float32).min))
    counted = scores if of == "masked" else product
    highest = ops.reduce_max(counted, [axis], True)
    exponents = ops.exp(ops.subtract(counted, highest))
    log_sum = ops.add(ops.squeeze(highest, [axis]), ops.log(ops.reduce_sum(exponents, [axis], False)))
    sink = (
        numpy.linspace(-1, 2, HEADS, dtype=numpy.float32).reshape(1, HEADS, 1)
        if by == "heads"
        else numpy.zeros([1, 1, 3], numpy.float32)
    )
    difference = ops.add(log_sum, -sink) if negated else ops.subtract(log_sum, sink)
    result = ops.matmul(ops.softmax(scores, -1), inputs["value"], False, False)
    outputs: list[Any] = [ops.multiply(result, ops.unsqueeze(ops.sigmoid(difference), [-1]))]
    outputs += [ops.tanh(result)] if further else []
    return openvino.Model([ops.result(output) for output in outputs], list(inputs.values()), "gated")


@pytest.mark.parametrize("negated", [False, True])
def test_a_gate_becomes_a_sink(negated):
    source = gated(negated=negated)
    before = source.clone()
    model, _, notes = fused(source)
    assert notes == ()
    (attention,) = [node for node in model.get_ops() if node.get_type_name() == "ScaledDotProductAttention"]
    assert list(attention.get_input_shape(5)) == [1, HEADS, 1, 1]
    random = numpy.random.default_rng(0)
    arrays = {name: random.standard_normal([2, HEADS, 3, SIZE], numpy.float32) for name in ("query", "key", "value")}
    arrays["seen"] = numpy.tril(numpy.ones([2, 1, 3, 3], numpy.bool_))
    expected, actual = (next(iter(infer(each, arrays).values())) for each in (before, model))
    numpy.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize(
    "form",
    [{"axis": -2}, {"of": "product"}, {"further": True}, {"by": "queries"}],
    ids=["sums of queries", "unmasked", "read twice", "one a query"],
)
def test_other_gates_are_not_sinks(form):
    model = OpenVINOModel(gated(**form))
    assert not model.analysis(find_sink_gates)
    after, _, notes = fused(model.ov_model)
    assert notes
    assert not any(node.get_type_name() == "ScaledDotProductAttention" for node in after.get_ops())
