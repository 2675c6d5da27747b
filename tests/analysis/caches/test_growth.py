"""How carried tensors change in size from step to step."""

from __future__ import annotations

import numpy
import onnx
import pytest
from onnx import TensorProto, helper
from support.graph_builder import builder_with_hidden_states

import graphpass
from graphpass.analysis.caches.growth import growth_of
from graphpass.analysis.caches.pairs import find_pairs
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.ir.cache import Axes


def carried(update, shape=("B", "S", "D")):
    """A model with one carried tensor of known rank and unknown sizes; ``update(build)`` names its present."""
    build = builder_with_hidden_states()
    build.input("past", [None] * len(shape))
    present = update(build)
    build.output(present, "present", [None] * len(shape))
    build.output("hidden", "logits", ["B", "N", 12])
    model = build.model()
    (pair,) = [pair for pair in find_pairs(model) if pair.read.name == "past"]
    return growth_of(model, pair.past, pair.present), graphpass.analyze_caches(model).cache("past")


def columns(build):
    """New columns of a convolution: ``[batch, 6, new]``."""
    return build.op("Transpose", build.op("MatMul", "hidden", build.weight(12, 6)), perm=[0, 2, 1])


def decayed(build):
    """One row a batch entry, of the last token: ``[batch, 6, 1]``."""
    return build.op("Slice", columns(build), build.ints(-1), build.ints(2**40), build.ints(2))


def test_a_window_of_a_number():
    def update(build):
        joined = build.op("Concat", "past", columns(build), axis=2)
        return build.op("Slice", joined, build.ints(-3), build.ints(2**40), build.ints(2))

    growth, cache = carried(update)
    assert growth[1:] == ("fixed", "fixed")
    assert (cache.kind, cache.role, cache.axes) == ("linear", "conv", Axes(batch=0))


def test_a_window_as_long_as_before():
    def update(build):
        joined = build.op("Concat", "past", columns(build), axis=2)
        length = build.op("Neg", build.op("Gather", build.op("Shape", "past"), build.ints(2)))
        return build.op("Slice", joined, length, build.ints(2**40), build.ints(2))

    growth, cache = carried(update)
    assert growth[1:] == ("fixed", "kept")
    assert (cache.kind, cache.role) == ("linear", "conv")


def test_a_window_that_drops_the_number_of_new_tokens():
    def update(build):
        new = columns(build)
        arrived = build.op("Gather", build.op("Shape", new), build.ints(2))
        joined = build.op("Concat", "past", new, axis=2)
        return build.op("Slice", joined, arrived, build.ints(2**40), build.ints(2))

    growth, cache = carried(update)
    assert growth[2] == "kept"
    assert cache.kind == "linear"


def test_a_decaying_matrix_keeps_its_size():
    growth, cache = carried(
        lambda build: build.op("Add", build.op("Mul", "past", build.constant(numpy.float32(0.5))), decayed(build))
    )
    assert growth[1:] == ("fixed", "kept")
    assert (cache.kind, cache.role, cache.axes) == ("linear", "recurrent", Axes(batch=0))


def test_a_state_with_batch_on_another_axis():
    def update(build):
        new = build.op("Transpose", decayed(build), perm=[1, 0, 2])
        return build.op("Add", build.op("Mul", "past", build.constant(numpy.float32(0.5))), new)

    growth, cache = carried(update)
    assert growth == ("fixed", "kept", "kept")
    assert (cache.kind, cache.axes) == ("linear", Axes(batch=1))


def test_an_appended_state_grows():
    growth, cache = carried(lambda build: build.op("Concat", "past", columns(build), axis=2))
    assert growth[1:] == ("fixed", "grows")
    assert (cache.kind, cache.axes.sequence) == ("unknown", 2)
    assert cache.evidence[-1] == "no recognized attention reads the present"


def test_a_window_that_always_drops_one_token():
    def update(build):
        joined = build.op("Concat", "past", columns(build), axis=2)
        return build.op("Slice", joined, build.ints(1), build.ints(2**40), build.ints(2))

    growth, cache = carried(update)
    assert growth[2] == "unknown"
    assert cache.kind == "unknown"
    assert cache.evidence[-1].startswith("its size is not fixed along axis 2")


def test_data_dependent_sizes_are_unknown():
    def update(build):
        rows = build.op("MatMul", "hidden", build.weight(12, 6))
        keep = build.op(
            "Greater", build.op("ReduceMax", "past", build.ints(0, 2), keepdims=0), build.constant(numpy.float32(0))
        )
        kept = build.op("Compress", "past", keep, axis=1)
        return build.op("Add", kept, build.op("ReduceMean", rows, build.ints(1), keepdims=1))

    growth, cache = carried(update)
    assert growth[1] == "unknown"
    assert cache.kind == "unknown"


@pytest.mark.parametrize("position", [TensorProto.INT64, TensorProto.INT32])
def test_symbols_inside_are_not_trusted(position):
    """Some exporters call all sizes that they do not know by one word."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("Concat", ["past", "x"], ["present"], axis=1),
    ]
    ports = [
        helper.make_tensor_value_info("ids", position, ["B", "N"]),
        helper.make_tensor_value_info("past", TensorProto.FLOAT, ["B", "P", 4]),
    ]
    table = onnx.numpy_helper.from_array(numpy.ones((5, 4), numpy.float32), "table")
    inner = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["?", "?", 4])]
    outputs = [helper.make_tensor_value_info("present", TensorProto.FLOAT, ["?", "?", 4])]
    graph = helper.make_graph(nodes, "main", ports, outputs, [table], value_info=inner)
    model = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    (pair,) = find_pairs(model)
    assert growth_of(model, pair.past, pair.present) == ("kept", "grows", "fixed")
