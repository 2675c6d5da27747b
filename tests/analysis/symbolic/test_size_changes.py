"""Sizes that slices and splits change: those that numpy and ONNX compute."""

import numpy
import onnxruntime
import pytest
from hypothesis import example, given, settings, strategies as st
from onnx import TensorProto, helper

from graphpass.analysis.symbolic.equal_sizes import dimension
from graphpass.analysis.symbolic.expressions import add, multiply, number
from graphpass.analysis.symbolic.node_sizes import NodeSizes
from graphpass.analysis.symbolic.size_changes import quotient
from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.testing import parse_model

BOUND = st.integers(-12, 12)


@given(st.integers(1, 9), BOUND, BOUND, st.integers(-4, 4).filter(bool))
@settings(max_examples=50)
@example(size=5, start=4, stop=-5, step=-1)
@example(size=5, start=4, stop=-6, step=-1)
@example(size=1, start=-2, stop=-2, step=-1)
def test_slices_of_fixed_axes_have_the_size_of_onnxruntime(size, start, stop, step):
    model = parse_model(
        f"%x = Parameter : f32[n, {size}]\n%y = Slice(%x, [{start}], [{stop}], [{step}]) {{axes=[1]}} : f32[n, m]\n"
        "Result(%y) {name=y}"
    )
    (cut,) = model.graph.of_op("Slice")
    # The declared shape is that of ONNX's inference; sizes of operands as arrays are inferred without it.
    bounds = {value: model.graph.constant(value) for value in cut.sources[1:]}
    _, inferred = NodeSizes(model.graph, {cut.source(): numpy.zeros((2, size)), **bounds}).of_output(
        cut, cut.outputs[0]
    )
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": numpy.zeros((2, size), numpy.float32)})
    assert inferred.as_number == result.shape[1]


def test_slices_that_end_early_fix_no_length():
    model = parse_model(
        "%x = Parameter : f32[n, 4]\n%last = Slice(%x, [-1], [7], [1]) {axes=[0]} : f32[?, 4]\n"
        "%y = Subtract(%last, %x) : f32[?, 4]\nResult(%y) {name=y}"
    )
    assert model.analysis(infer_sizes).shape(model.graph.parameters["x"]) == (dimension("n"), number(4))


@given(st.integers(-8, 8), st.integers(-8, 8), st.integers(1, 4))
def test_quotients_are_exact_or_unknown(factor, rest, by):
    size = add(multiply(dimension("n"), number(factor)), number(rest))
    divided = quotient(size, by)
    if factor % by or rest % by:
        assert divided is None
    else:
        assert divided is add(multiply(dimension("n"), number(factor // by)), number(rest // by))
    assert quotient(size, 0) is None


@pytest.mark.parametrize(("attributes", "sizes"), [({"split": [2, 4]}, [2, 4]), ({}, [3, 3])])
def test_lengths_of_parts_are_an_attribute_before_opset_13(attributes, sizes):
    node = helper.make_node("Split", ["x"], ["a", "b"], axis=1, **attributes)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", None]) for name in ("x", "a", "b")]
    proto = helper.make_model(helper.make_graph([node], "split", ports[:1], ports[1:]), ir_version=6)
    proto.opset_import[0].version = 11
    (split,) = OnnxModel(proto).graph.of_op("Split", "VariadicSplit")
    known = NodeSizes(OnnxModel(proto).graph, {split.source(): numpy.zeros((2, 6))})
    assert [known.of_output(split, part)[1].as_number for part in split.outputs] == sizes
