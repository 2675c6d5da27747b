"""The view of an OpenVINO model: attributes under neutral names, and loops."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops

from graphpass.dialects.openvino.graph import build


def x(*shape, kind=numpy.float32):
    return ops.parameter(shape or [-1, 3, 4], kind)


def node_of(native):
    inputs = {}
    pending = [native]
    while pending:
        op = pending.pop()
        pending += [source.get_node() for source in op.input_values()]
        inputs |= {op.get_name(): op} if op.get_type_name() == "Parameter" else {}
    graph = build(openvino.Model([ops.result(native.output(0))], list(inputs.values())))
    return graph.producer(next(graph.of_op("Result")).source())


@pytest.mark.parametrize(
    ("native", "stated"),
    [
        (lambda: ops.softmax(x(), -1), {"axis": 2}),
        (lambda: ops.transpose(x(), numpy.array([], numpy.int64)), {"order": (2, 1, 0)}),
        (lambda: ops.unsqueeze(x(), [-1]), {"axes": (3,)}),
        (lambda: ops.squeeze(x(1, 3), [-2]), {"axes": (0,)}),
        (lambda: ops.gather(x(), [0], -1), {"axis": 2, "batch_dims": 0}),
        (lambda: ops.gather(x(), x(-1, 2, kind=numpy.int32), 1, -1), {"axis": 1, "batch_dims": 1}),
        (lambda: ops.gather(x(), [0], x(1, kind=numpy.int32)), {"batch_dims": 0}),
        (lambda: ops.slice(x(), [0], [1], [1], [-1]), {"axes": (2,), "steps_port": 3}),
        (lambda: ops.one_hot(x(-1, kind=numpy.int64), 4, 1.0, 0.0, -1), {"axis": 1}),
        (lambda: ops.add(x(2, 3), x(2, 3), "pdpd"), {"aligns_first": True}),
        (lambda: ops.divide(x(kind=numpy.int64), x(kind=numpy.int64)), {"floors": True}),
        (lambda: ops.divide(x(), x()), {}),
        (lambda: ops.pad(x(), [0, 0, 0], [0, 0, 1], "edge"), {"pad_mode": "edge"}),
        (lambda: ops.pad(x(), [0, 0, 0], [0, 0, 1], "constant"), {}),
        (lambda: ops.cum_sum(x(), 1), {}),
        (lambda: ops.cum_sum(x(), 1, reverse=True), {"reverse": True}),
    ],
)
def test_attributes_are_positive_and_omit_defaults(native, stated):
    assert node_of(native()).attributes == stated


def test_only_the_type_of_a_second_operand_is_no_input():
    like = node_of(ops.convert_like(x(), x(1, kind=numpy.float16)))
    assert (like.op, len(like.inputs), like.outputs[0].element_type) == ("Convert", 1, "f16")


def test_bits_of_bf16_are_read_as_numbers():
    model = openvino.Model([ops.result(ops.constant([1.5, -2.0], openvino.Type.bf16))], [])
    graph = build(model)
    (constant,) = graph.of_op("Constant")
    assert graph.constant(constant.outputs[0]).tolist() == [1.5, -2.0]


@pytest.mark.parametrize("reads_number", [False, True])
def test_loops_are_inlined_with_their_count(reads_number):
    inner = ops.parameter([2], numpy.float32)
    number = ops.parameter([], numpy.int64)
    step = ops.add(inner, ops.convert(number, "f32")) if reads_number else ops.relu(inner)
    body = openvino.Model(
        [ops.result(ops.constant([True])), ops.result(step)], [inner, number] if reads_number else [inner]
    )
    loop = ops.loop(ops.constant(numpy.int64(5)), ops.constant(True))
    loop.set_function(body)
    outer = ops.parameter([2], numpy.float32)
    loop.set_merged_input(inner, outer.output(0), body.get_results()[1].output(0))
    loop.set_special_body_ports([1 if reads_number else -1, 0])
    final = loop.get_iter_value(body.get_results()[1].output(0), -1)
    graph = build(openvino.Model([ops.result(final)], [outer]), inline=True)
    (count,), (carried,), (end,) = graph.of_op("Iteration"), graph.of_op("Carried"), graph.of_op("Final")
    assert graph.constant(count.attributes["count"]).item() == 5
    assert graph.producer(carried.source()).op == "Parameter"
    assert end.inputs[1] == carried.outputs[0]
    assert graph.producer(end.inputs[0]).op == ("Add" if reads_number else "Relu")
