"""The Converts through which a cache is read."""

from __future__ import annotations

import openvino
import pytest
from openvino import opset13 as ops

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.passes.caches.slots import conversions


@pytest.mark.parametrize(
    ("users", "count"),
    [
        (("f32", "f32", "shape"), 2),
        (("f32",), 1),
        (("f32", "f64"), 0),
        (("f32", "relu"), 0),
        (("shape",), 0),
        (("output",), 0),
    ],
)
def test_conversions_of_a_past_are_counted(users, count):
    past = ops.parameter(openvino.PartialShape([-1, 2]), openvino.Type.f16)
    make = {"shape": ops.shape_of, "relu": ops.relu, "output": lambda value: value}
    made = [make[user](past) if user in make else ops.convert(past, user) for user in users]
    model = OpenVINOModel(openvino.Model([ops.result(node) for node in made], [past], ""))
    (parameter,) = model.graph.of_op("Parameter")
    assert [node.op for node in conversions(model.graph, parameter.outputs[0])] == ["Convert"] * count
