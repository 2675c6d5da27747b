"""Edits of the body of a loop."""

import numpy
import openvino
import pytest
from openvino import opset13

from graphpass.dialects.openvino.graph import build
from graphpass.dialects.openvino.loops import LoopBody


def summing(stride: int = 1) -> openvino.Model:
    """Return a TensorIterator that adds each token to a state."""
    x = opset13.parameter([-1, 4], numpy.float32, name="x")
    start = opset13.parameter([1, 4], numpy.float32, name="start")
    kept = opset13.parameter([-1, 1], numpy.float32, name="kept")
    token, state = (opset13.parameter([1, 4], numpy.float32, name=name) for name in ("token", "state"))
    total = opset13.result(opset13.add(state, token))
    body = openvino.Model([total], [token, state], "body")
    loop = opset13.tensor_iterator()
    loop.set_body(body)
    first, last = (0, -1) if stride == 1 else (-1, 0)
    loop.set_sliced_input(token, x.output(0), first, stride, 1, last, 0)
    loop.set_merged_input(state, start.output(0), total.output(0))
    result = opset13.add(loop.get_iter_value(total.output(0), -1), opset13.reduce_sum(kept, opset13.constant([0, 1])))
    return openvino.Model([result], [x, start, kept], "summing")


def loop_of(model):
    (loop,) = build(model).of_op("TensorIterator")
    return loop


def test_the_body_s_value_and_result_of_a_state():
    model = summing()
    body = LoopBody(loop_of(model), lambda: None)
    assert body.steps_by_one
    before, result = body.carried(1)
    assert before.name == "state"
    assert body.rewriter.graph.producer(result.source()).op == "Add"
    assert body.carried(0) is None
    assert not LoopBody(loop_of(summing(-1)), lambda: None).steps_by_one


def test_an_input_is_sliced_token_by_token():
    model, edits = summing(), []
    loop = loop_of(model)
    body = LoopBody(loop, lambda: edits.append(1))
    before, result = body.carried(1)
    own = body.slice_input(model.inputs[2], 0, "own")
    write = body.rewriter.under("masked")
    added = body.rewriter.graph.producer(result.source())
    body.rewriter.redirect(
        added, 1 - added.inputs.index(before), write.op("Multiply", added.source(1 - added.inputs.index(before)), own)
    )
    assert body.rewriter.finish()
    assert edits
    x, kept = numpy.arange(12, dtype="f4").reshape(3, 4), numpy.array([[1], [0], [2]], "f4")
    compiled = openvino.compile_model(model, "CPU")
    found = compiled([x, numpy.ones((1, 4), "f4"), kept])[0]
    numpy.testing.assert_allclose(found, 1 + (x * kept).sum(0, keepdims=True) + 3)


@pytest.mark.parametrize("stride", [1, -1])
def test_models_without_edits_stay(stride):
    model = summing(stride)
    assert not LoopBody(loop_of(model), lambda: pytest.fail("edited")).rewriter.finish()
