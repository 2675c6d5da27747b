"""Lowering EmbedLayerNormalization: the numbers of ONNX Runtime's kernel."""

from __future__ import annotations

import itertools

import numpy
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from verify.structure.comparing import is_equal

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import UnsupportedError
from graphpass.testing import run

HIDDEN = 8


def build(*, segments: bool, positions: bool, summed: bool = True) -> OnnxModel:
    random = numpy.random.default_rng(1)
    tables = {"words": (20, HIDDEN), "places": (10, HIDDEN), "types": (2, HIDDEN), "gamma": HIDDEN, "beta": HIDDEN}
    weights = {name: random.normal(size=shape).astype(numpy.float32) for name, shape in tables.items()}
    names = [
        "input_ids",
        "token_type_ids" if segments else "",
        "words",
        "places",
        "types" if segments else "",
        "gamma",
        "beta",
    ]
    names += ["", "position_ids"] if positions else []
    inputs = ["input_ids", *(["token_type_ids"] if segments else []), *(["position_ids"] if positions else [])]
    node = helper.make_node(
        "EmbedLayerNormalization",
        names,
        ["logits", "index", *(["total"] if summed else [])],
        "embed",
        domain="com.microsoft",
        epsilon=1e-3,
    )
    hidden = ["batch", "length", HIDDEN]
    outputs = ["logits", *(["total"] if summed else [])]
    graph = helper.make_graph(
        [node],
        "embed",
        [helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", "length"]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, hidden) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=9))


@pytest.mark.parametrize(("segments", "positions"), list(itertools.product([False, True], repeat=2)))
def test_computes_and_proves_the_same(segments, positions):
    model = build(segments=segments, positions=positions)
    after = run(model, "lower-operators")
    assert [node.op for node in after.graph.of_op("LayerNormalization", "EmbedLayerNormalization")] == [
        "LayerNormalization"
    ]
    random = numpy.random.default_rng(2)
    limits = {"input_ids": 20, "token_type_ids": 2, "position_ids": 10}
    feeds = {port.name: random.integers(0, limits[port.name], (2, 5)).astype(numpy.int32) for port in model.inputs}
    expected, found = (
        onnxruntime.InferenceSession(one.proto.SerializeToString()).run(["logits", "total"], feeds)
        for one in (model, after)
    )
    numpy.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    numpy.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    assert is_equal(model, after)
    assert is_equal(model, after, "total")


def test_another_epsilon_is_not_proven():
    model = build(segments=True, positions=True)
    after = run(model, "lower-operators")
    norm = next(node for node in after.proto.graph.node if node.op_type == "LayerNormalization")
    next(attribute for attribute in norm.attribute if attribute.name == "epsilon").f = 2e-3
    after.mark_edited()
    assert not is_equal(model, after)


def test_the_form_of_encoders_stays():
    model = build(segments=True, positions=False, summed=False)
    assert run(model, "lower-operators").proto == model.proto


def test_refuses_a_used_index_of_the_mask():
    model = build(segments=False, positions=True)
    model.proto.graph.output.append(helper.make_tensor_value_info("index", TensorProto.INT32, ["batch"]))
    with pytest.raises(UnsupportedError, match=r"GP341.*index of the mask"):
        run(model, "lower-operators")
