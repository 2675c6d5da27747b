"""What a model carries that is not a cache, or that no step changes: named as what it is."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from openvino.op import read_value
from openvino.op.util import Variable, VariableInfo

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.cache import Axes

F32, I64 = openvino.Type.f32, openvino.Type.i64


def variable(name, shape, kind):
    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = openvino.PartialShape(shape), kind, name
    return Variable(info)


def number(value):
    return ops.constant(numpy.float32(value))


def hidden():
    """An input of ids, and what a table says of them: ``[?, ?, 4]``."""
    ids = ops.parameter(openvino.PartialShape([-1, -1]), I64)
    return ids, ops.gather(ops.constant(numpy.ones((5, 4), numpy.float32)), ids, ops.constant(0))


def inventory(results, sinks, parameters):
    native = openvino.Model([ops.result(one) for one in results], sinks, parameters, "")
    openvino.Core().compile_model(native, "CPU")
    return graphpass.analyze_caches(OpenVINOModel(native))


@pytest.mark.parametrize("is_written", [True, False])
def test_adapter_weights_are_of_kind_other(is_written):
    """As openvino.genai adds them: a variable without initial value, multiplied with the layer's input."""
    ids, x = hidden()
    kept = variable("lora_state_0", [-1, 4], F32)
    bare = read_value(kept)
    y = ops.matmul(x, bare, False, True)
    native = openvino.Model([ops.result(y)], [openvino.opset6.assign(bare, kept)], [ids], "")
    if not is_written:
        native.remove_sink(native.get_sinks()[0])
    found = graphpass.analyze_caches(OpenVINOModel(native))
    (cache,) = found.caches
    assert (cache.kind, cache.role, cache.layer, found.kind) == ("other", "adapter", None, "none")
    assert cache.evidence[0].startswith("it has no initial value, and ")
    assert cache.evidence[1].startswith("MatMul ")


@pytest.mark.parametrize("shape", [[], [1]])
def test_a_counter_is_of_kind_other(shape):
    ids, x = hidden()
    kept = variable("count", shape, I64)
    read = openvino.opset6.read_value(ops.constant(numpy.zeros(shape, numpy.int64)), kept)
    more = ops.add(read, ops.constant(numpy.ones(shape, numpy.int64)))
    y = ops.multiply(x, ops.convert(read, "f32"))
    (cache,) = inventory([y], [openvino.opset6.assign(more, kept)], [ids]).caches
    assert (cache.kind, cache.role, cache.layer) == ("other", "counter", None)
    assert cache.evidence[0].startswith("one integer, to which Add ")


def test_a_cached_encoder_output():
    """As optimum's bart: the hidden states themselves became a variable, and weights make keys and values of them."""
    ids, x = hidden()
    states = ops.parameter(openvino.PartialShape([-1, -1, 4]), F32)
    kept = variable("7", [-1, -1, 4], F32)
    read = openvino.opset6.read_value(states, kept)

    def heads(value):
        flat = ops.matmul(value, ops.constant(numpy.ones((4, 4), numpy.float32)), False, False)
        return ops.transpose(ops.reshape(flat, ops.constant([0, 0, 2, 2]), True), ops.constant([0, 2, 1, 3]))

    y = ops.scaled_dot_product_attention(heads(x), heads(read), heads(read))
    (cache,) = inventory([y], [openvino.opset6.assign(read, kept)], [ids, states]).caches
    assert (cache.kind, cache.role, cache.axes) == ("cross", "encoder_hidden", Axes(batch=0))
    assert cache.evidence[0] == "starts as an input of the model, written back unchanged"
    assert cache.evidence[1].startswith("keys and values are computed from it by MatMul ")


def test_the_state_of_an_lstm_in_openvino():
    ids, x = hidden()
    first = ops.reshape(ops.reduce_mean(x, ops.constant([1])), ops.constant([-1, 4]), False)
    starts, names = [], ("h", "c")
    for name in names:
        start = ops.parameter(openvino.PartialShape([-1, 4]), F32)
        start.output(0).set_names({name})
        starts.append(start)
    weights = [ops.constant(numpy.ones(shape, numpy.float32)) for shape in ((16, 4), (16, 4), (16,))]
    kept = [variable(name, [-1, 4], F32) for name in names]
    old = [openvino.opset6.read_value(start, one) for start, one in zip(starts, kept, strict=True)]
    cell = ops.lstm_cell(first, *old, *weights, hidden_size=4)
    after = [ops.convert(cell.output(port), "f32") for port in (0, 1)]
    sinks = [openvino.opset6.assign(value, one) for value, one in zip(after, kept, strict=True)]
    found = inventory([cell.output(0)], sinks, [ids, *starts])
    assert {(cache.name, cache.kind, cache.role) for cache in found.caches} == {
        (name, "other", "recurrent") for name in names
    }
    assert found.kind == "none"
    assert all("LSTMCell" in cache.evidence[0] for cache in found.caches)


def test_a_residual_input_is_not_a_cache():
    ids, x = hidden()
    residual = ops.parameter(openvino.PartialShape([-1, -1, 4]), F32)
    total = ops.add(residual, ops.multiply(x, number(0.5)))
    found = inventory([total], [], [ids, residual])
    assert not found.caches
    assert (found.unpaired_inputs, found.unpaired_outputs) == ((), ())
