"""Lowering tensor-scatter: the same numbers as onnx's reference, in a form that OpenVINO can read."""

from __future__ import annotations

from typing import Any

import numpy
import onnxruntime
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper, version_converter
from onnx.reference import ReferenceEvaluator
from support import operator_forms
from support.decode import compiled
from support.models import export

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.registry import get_target
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.passes.caches.static_cache import StaticCache
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.lower.lower_operators import LowerOperators
from graphpass.verify import compare


def build(shape: list[int], axis: int | None, *, start: bool = True, **given: Any) -> OnnxModel:
    """Inputs cache, update and start, output present; all sizes but those of the last axis are symbols."""
    names = [f"{letter}" for letter in "abcd"[: len(shape) - 1]]
    grown = [*names, shape[-1]]
    place = (-2 if axis is None else axis) % len(shape)
    new: list[Any] = [*grown]
    new[place] = "length"
    inputs = [
        helper.make_tensor_value_info("cache", TensorProto.FLOAT, grown),
        helper.make_tensor_value_info("update", TensorProto.FLOAT, new),
    ]
    if start:
        inputs.append(helper.make_tensor_value_info("start", TensorProto.INT64, grown[:1]))
    given = given if axis is None else given | {"axis": axis}
    node = helper.make_node("TensorScatter", [entry.name for entry in inputs], ["present"], "scatter", **given)
    present = helper.make_tensor_value_info("present", TensorProto.FLOAT, grown)
    graph = helper.make_graph([node], "scatter", inputs, [present])
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11))


def lowered(model: OnnxModel) -> OnnxModel:
    result = PassManager([LowerOperators()]).run(model)
    assert result.records[0].result.changed
    assert isinstance(result.model, OnnxModel)
    result.model.validate()
    return result.model


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_computes_the_same(data):
    rank = data.draw(st.integers(3, 4))
    shape = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    axis = data.draw(st.sampled_from([None, *range(1, rank), *range(-rank + 1, 0)]))
    place = (-2 if axis is None else axis) % rank
    shape[place] = capacity = data.draw(st.integers(1, 6))
    length = data.draw(st.integers(1, capacity))
    circular = data.draw(st.booleans())
    highest = capacity - 1 if circular else capacity - length
    start = data.draw(st.lists(st.integers(0, highest), min_size=shape[0], max_size=shape[0]))
    random = numpy.random.default_rng(0)
    update = random.standard_normal([length if number == place else size for number, size in enumerate(shape)])
    feeds = {
        "cache": random.standard_normal(shape).astype(numpy.float32),
        "update": update.astype(numpy.float32),
        "start": numpy.array(start),
    }
    model = build(shape, axis, mode="circular" if circular else "linear")
    expected = ReferenceEvaluator(model.proto).run(None, feeds)[0]
    after = lowered(model)
    session = onnxruntime.InferenceSession(after.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    numpy.testing.assert_array_equal(session.run(None, feeds)[0], expected)
    result = PassManager([ToOpenVINO()]).run(after).model
    assert isinstance(result, OpenVINOModel)
    numpy.testing.assert_array_equal(compiled(result.ov_model)(feeds)["present"], expected)


def test_a_missing_position_writes_at_the_front():
    model = build([2, 2, 5, 3], None, start=False)
    feeds = {"cache": numpy.ones([2, 2, 5, 3], numpy.float32), "update": numpy.zeros([2, 2, 2, 3], numpy.float32)}
    session = onnxruntime.InferenceSession(lowered(model).proto.SerializeToString())
    numpy.testing.assert_array_equal(session.run(None, feeds)[0], ReferenceEvaluator(model.proto).run(None, feeds)[0])


def test_a_second_run_changes_nothing():
    once = lowered(build([2, 2, 5, 3], None))
    assert not PassManager([LowerOperators()]).run(once).records[0].result.changed


def test_refuses_a_cache_of_unknown_rank():
    model = build([2, 2, 5, 3], None)
    for info in (*model.proto.graph.input[:2], *model.proto.graph.output):
        info.type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match=r"GP341: .* scatter cannot be lowered: the rank of its cache"):
        PassManager([LowerOperators()]).run(model)


def test_openvino_still_cannot_read_the_operator():
    """When this fails, openvino's frontend has learned it: see whether the pass is still needed."""
    with pytest.raises(UnsupportedError, match="GP311"):
        PassManager([ToOpenVINO()]).run(build([2, 2, 5, 3], None))


@pytest.mark.parametrize("room", [9, "capacity"])
def test_a_cache_written_in_place_does_not_become_a_variable(monkeypatch, room):
    """Variables start without positions: there would be nothing to write into."""
    monkeypatch.setattr(operator_forms, "ROOM", room)
    model = operator_forms.external()
    passes = get_target("cpu").pipeline(model)
    assert passes[0].name == "lower-operators"
    with pytest.raises(UnsupportedError, match=r"GP326: .* cache past_key always has .*: written in place"):
        PassManager(passes).run(model)


def test_attention_over_scattered_caches_computes_the_same():
    """OpenVINO's frontend reads what tells Attention how many positions there are (nonpad_kv_seqlen)."""
    model = operator_forms.external()
    random = numpy.random.default_rng(0)
    given = {
        "ids": numpy.array([[1, 2, 3], [3, 2, 1]]),
        "where": numpy.array([4, 2]),
        "seen": numpy.array([7, 5]),
        "past_key": random.standard_normal([2, 3, 9, 8]).astype(numpy.float32),
        "past_value": random.standard_normal([2, 3, 9, 8]).astype(numpy.float32),
    }
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns that it copies a cache that is not written in place
    expected = onnxruntime.InferenceSession(model.proto.SerializeToString(), options).run(None, given)
    result = PassManager([LowerOperators(), ToOpenVINO()]).run(model).model
    assert isinstance(result, OpenVINOModel)
    found = compiled(result.ov_model)(given)
    for port, want in enumerate(expected):
        numpy.testing.assert_allclose(found[port], want, atol=1e-5)


def test_a_decoder_of_fixed_capacity_runs_on_openvino():
    llama = version_converter.convert_version(load(export("llama", "onnx")).proto, 24)
    fixed = PassManager([StaticCache(32)]).run(OnnxModel(llama)).model
    assert any(True for _ in fixed.graph.of_op("TensorScatter"))
    result = PassManager([LowerOperators(), ToOpenVINO()]).run(fixed).model
    assert compare(fixed, result, steps=4).passed
