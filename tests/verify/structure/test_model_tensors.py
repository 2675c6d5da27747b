"""Tensors between layers are read as inputs, unless an operator has read them."""

from __future__ import annotations

import pytest
from verify.structure.comparing import comparer_of, model_of_function

from graphpass.analysis.symbolic.expressions import ZERO, walk
from graphpass.verify.structure.definition import Definition
from graphpass.verify.structure.model_tensors import ModelTensors

STREAM = Definition("between layers", ("h",), ())


@pytest.fixture
def tensors() -> ModelTensors:
    body = """
        h = Add (x, z)
        table = Constant <value = float[3] {2.0, 3.0, 5.0}> ()
        third = Constant <value = int64 {2}> ()
        factor = Gather (table, third)
        n = Neg (h)
        y = Mul (n, factor)"""
    model = model_of_function(body, "float[rows, columns, width] x, float[rows, columns, width] z")
    return comparer_of(model, model, "logits", unpadded=False).sides[0]


def result_of(tensors, kind):
    return next(iter(tensors.graph.of_op(kind))).outputs[0]


def inputs_of(tensors, value):
    return {str(part.args[0]) for part in walk(tensors.whole(value)) if part.op == "read"}


def test_a_fed_tensor_is_an_input_downstream(tensors):
    between = result_of(tensors, "Add")
    assert "z" in inputs_of(tensors, between)
    tensors.feed(between, STREAM)
    assert tensors.stream(between) is STREAM
    assert inputs_of(tensors, result_of(tensors, "Multiply")) == {str(STREAM)}


def test_tensors_are_read_by_operators_downstream(tensors):
    between, result = result_of(tensors, "Add"), result_of(tensors, "Multiply")
    tensors.whole(between)
    assert not tensors.is_read(between)
    tensors.whole(result)
    assert tensors.is_read(between)
    assert not tensors.is_read(result)


def test_constants_of_which_an_element_was_read_are_known(tensors):
    tensors.whole(result_of(tensors, "Multiply"))
    names = {tensors.graph.nodes[index].name for index in tensors.read_as_numbers}
    assert any("table" in name for name in names)


def test_operators_outside_of_experts_and_chunks_are_local(tensors):
    assert {tensors.marks(node) for node in tensors.graph.nodes} == {(False, False, False, False)}


def test_constants_whose_rows_are_padded_to_bytes_are_known():
    """Models may store these integers in other bytes, also upstream of a Reshape."""
    body = """
        stored = Constant <value = uint8[4] {1, 2, 3, 4}> ()
        sizes = Constant <value = int64[2] {2, 2}> ()
        view = Reshape (stored, sizes)
        y = Cast <to = 1> (view)"""
    model = model_of_function(body, "float[rows, columns, width] x")
    tensors = comparer_of(model, model, "logits", unpadded=False).sides[0]
    view = result_of(tensors, "Reshape")
    (stored,) = [node for node in tensors.graph.of_op("Constant") if node.outputs[0].element_type == "u8"]
    tensors.packed(view, 4, (2, 4), (ZERO, ZERO))
    assert stored.index not in tensors.read_as_numbers
    tensors.packed(view, 4, (2, 3), (ZERO, ZERO))
    assert stored.index in tensors.read_as_numbers
