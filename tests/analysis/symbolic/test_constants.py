"""`constant_element`: vectors that count, or repeat what counts, are expressions of the place."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, strategies as st
from onnx import TensorProto, helper

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import constant_element
from graphpass.analysis.symbolic.evaluate import arrays_at
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.graph import Graph, Value


def constant(array: numpy.ndarray) -> tuple[Graph, Value]:
    node = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.INT64, array.shape, array))
    port = helper.make_tensor_value_info("c", TensorProto.INT64, array.shape)
    model = OnnxModel(helper.make_model(helper.make_graph([node], "g", [], [port])))
    return model.graph, next(model.graph.of_op("Constant")).outputs[0]


def element(array: numpy.ndarray) -> ex.Expr:
    found = constant_element(*constant(array), (ex.index("place", ex.number(array.size)),))
    assert found is not None
    return found


@pytest.mark.parametrize(("place", "number"), [(-1, None), (0, 1), (2, 9), (3, None)])
def test_elements_outside_a_constant_are_unknown(place, number):
    found = constant_element(*constant(numpy.array([1, 4, 9])), (ex.number(place),))
    assert (None if found is None else found.as_number) == number


@pytest.mark.parametrize("element_type", ["BFLOAT16", "FLOAT16", "FLOAT"])
def test_elements_of_16_bits_are_real(element_type):
    """Attention sinks of a model in bf16 are one table with those of its conversion to f32."""
    code = TensorProto.DataType.Value(element_type)
    numbers = helper.make_tensor("c", code, [3], [0.5, -1.25, 3.0])
    port = helper.make_tensor_value_info("c", code, [3])
    graph = helper.make_graph([helper.make_node("Constant", [], ["c"], value=numbers)], "g", [], [port])
    model = OnnxModel(helper.make_model(graph))
    value = next(model.graph.of_op("Constant")).outputs[0]
    found = constant_element(model.graph, value, (ex.index("place", ex.number(3)),))
    assert found.sort == "real"
    assert found.args[0].elements.tolist() == [0.5, -1.25, 3.0]


@pytest.mark.parametrize(
    ("vector", "reads"),
    [
        ([3, 4, 5, 6], False),
        ([0, 0, 1, 1], False),
        ([5, 5, 5, 2, 2, 2], False),
        ([0, 1, 0, 1, 0, 1], False),
        ([0, 0, 1], True),
        ([0, 1, 1, 0], True),
        ([0, 0, 1, 1, 3, 3], True),
    ],
)
def test_regular_constants_are_read_as_expressions(vector: list[int], reads: bool) -> None:
    assert any(part.op == "read" for part in ex.walk(element(numpy.array(vector)))) == reads


@given(
    st.integers(-3, 3), st.integers(-2, 2), st.integers(2, 4), st.integers(1, 4), st.sampled_from(["each", "all", "no"])
)
def test_elements_equal_the_vector(start: int, step: int, count: int, times: int, way: str) -> None:
    numbers = start + step * numpy.arange(count)
    vector = numbers.repeat(times) if way == "each" else numpy.tile(numbers, times if way == "all" else 1)
    place = ex.index("place", ex.number(vector.size))
    found = arrays_at(element(vector), {place: numpy.arange(vector.size)})
    assert (numpy.broadcast_to(found, vector.shape) == vector).all()
