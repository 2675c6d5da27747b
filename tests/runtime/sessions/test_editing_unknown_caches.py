"""Rows of caches whose kind or batch axis is not known."""

from __future__ import annotations

import numpy as np
import openvino
import pytest
from openvino import opset13 as ops
from openvino.op.util import Variable, VariableInfo
from support.models import export

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.runtime import open_session
from graphpass.verify import compare


@pytest.fixture(scope="module", params=["bloom", pytest.param("gpt_oss", marks=pytest.mark.slow)])
def unrecognized(request: pytest.FixtureRequest) -> tuple[Model, Model]:
    """A fixture, and the same with each Softmax in parts, whose attention no analysis recognises."""
    before = load(export(request.param, "onnx"))
    after = before.clone()
    rewriter = after.rewriter()
    for node in list(after.graph.of_op("Softmax")):
        write, scores = rewriter.under(node.name), node.source()
        largest = write.op("ReduceMax", scores, axes=[-1], keep=True)
        powers = write.op("Exp", write.op("Subtract", scores, largest))
        total = write.op("ReduceSum", powers, axes=[-1], keep=True)
        rewriter.replace(node.outputs[0], write.op("Divide", powers, total))
    rewriter.finish()
    after.mark_edited()
    return before, after


def test_rows_of_caches_of_unknown_kind_are_selected(unrecognized: tuple[Model, Model]) -> None:
    before, after = unrecognized
    assert {cache.kind for cache in analyze_caches(after).caches} == {"unknown"}
    session = open_session(after)
    session.prefill([[3, 1, 4], [1, 5, 9], [2, 6, 5]])
    session.select([2, 0, 0, 1])
    got = session.step([7, 8, 9, 7])
    tokens = [[2, 6, 5, 7], [3, 1, 4, 8], [3, 1, 4, 9], [1, 5, 9, 7]]
    np.testing.assert_allclose(got[:, -1], open_session(before).prefill(tokens)[:, -1], atol=1e-4)
    found = compare(before, after, steps=3)
    assert found.passed, found.summary()


def with_variable(model: Model, read: openvino.Output, written: openvino.Output, variable: Variable) -> Model:
    """A copy that writes a variable, and multiplies logits by its largest number."""
    native = model.ov_model  # type: ignore[attr-defined]
    native.add_variables([variable])
    native.add_sinks([ops.assign(written.get_node(), variable)])
    logits = native.get_results()[0].input(0)
    axes = ops.constant(np.arange(read.get_partial_shape().rank.get_length()))
    largest = ops.reduce_max(written, axes, keep_dims=False)
    logits.replace_source_output(ops.multiply(logits.get_source_output(), largest).output(0))
    model.mark_edited()
    return model


def variable_of(shape: openvino.PartialShape) -> Variable:
    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = shape, openvino.Type.f32, "steps"
    return Variable(info)


def test_an_unknown_batch_axis_is_refused() -> None:
    """A variable grows beside the caches, and either of two dimensions may be that of the batch."""
    after = PassManager(parse("to-openvino,make-stateful{beam-index=false}")).run(load(export("llama", "onnx"))).model
    ids = next(one for one in after.ov_model.get_parameters() if one.get_friendly_name() == "input_ids")  # type: ignore[attr-defined]
    start = ops.constant(np.zeros((2, 1, 1), np.float32))
    variable = variable_of(openvino.PartialShape([-1, -1, -1]))
    read = ops.read_value(start, variable)
    ones = ops.unsqueeze(ops.convert(ops.equal(ids, ids), "f32"), 1)
    after = with_variable(after, read.output(0), ops.concat([read, ones], 2).output(0), variable)
    assert analyze_caches(after).cache("steps").kind == "unknown"
    session = open_session(after)
    session.prefill([[3, 1, 4], [1, 5, 9]])
    with pytest.raises(UnsupportedError, match="the batch axis of cache steps is not known") as caught:
        session.select([1, 0])
    assert caught.value.id == "GP370"


@pytest.mark.parametrize("shape", [(1,), (1, 8), (8,)])
def test_variables_without_a_batch_axis_are_shared_by_all_rows(shape: tuple[int, ...]) -> None:
    """A variable that counts steps, and scales logits."""
    model = load(export("llama", "ov-stateful")).clone()
    variable = variable_of(openvino.PartialShape(shape))
    read = ops.read_value(ops.constant(np.zeros(shape, np.float32)), variable)
    counted = ops.add(read, ops.constant(np.ones(shape, np.float32)))
    model = with_variable(model, read.output(0), counted.output(0), variable)
    session, plain = open_session(model), open_session(load(export("llama", "ov-stateful")))
    session.prefill([[3, 1, 4], [1, 5, 9]])
    session.step([[2, 6], [5, 3]])
    session.select([1, 0, 1])
    wanted = plain.prefill([[1, 5, 9, 5, 3, 8], [3, 1, 4, 2, 6, 9], [1, 5, 9, 5, 3, 7]])[:, -1:]
    np.testing.assert_allclose(session.step([8, 9, 7]), 3 * wanted, rtol=1e-4, atol=1e-3)
