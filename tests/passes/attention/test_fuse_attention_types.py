"""fuse-attention on f16, bf16 and mixed graphs."""

from __future__ import annotations

import dataclasses

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import Form, Mask, Scale, Sizes, build, check, feeds, fused, infer


def attention(model: openvino.Model) -> openvino.Node:
    (found,) = [op for op in model.get_ops() if op.get_type_name() == "ScaledDotProductAttention"]
    return found


def types(node: openvino.Node) -> set[str]:
    return {port.get_element_type().to_string() for port in node.input_values()}


@pytest.mark.parametrize(("softmax", "wide"), [("f16", False), ("f32", False), ("f32", True)])
@pytest.mark.parametrize("fill", [-numpy.inf, -65504.0])
def test_attention_in_f16_stays_f16(softmax, wide, fill):
    masks = (Mask(fill=fill), Mask("11LS", "keep", fill), Mask("B11S", "chosen", fill))
    form = Form((Scale(0.3),), masks, True, past=True, element_type="f16", softmax_type=softmax, wide_value=wide)
    check(form, Sizes(), tolerance=5e-3)
    after, _, _ = fused(build(form))
    assert types(attention(after)) == {"f16"}
    # The CPU plugin's fusion with the cache takes no Convert in between.
    assert attention(after).input_value(2).get_node().get_type_name() == "Concat"


@pytest.mark.parametrize("key", ["transpose", "matmul"])
@pytest.mark.parametrize("wide_value", [False, True])
@pytest.mark.parametrize("scale", [Scale(4.0, divides=True), Scale(0.25, "query")], ids=str)
def test_scores_in_f32_of_f16_operands(scale, wide_value, key):
    masks = (Mask("11LS", "keep", numpy.finfo(numpy.float32).min), Mask())
    form = Form((scale,), masks, past=True, key=key, element_type="f16", softmax_type="f32", wide_scores=True)
    form = dataclasses.replace(form, wide_value=wide_value)
    check(form, Sizes(), tolerance=5e-3)
    after, _, notes = fused(build(form))
    assert notes == ()
    assert types(attention(after)) == {"f16"}
    assert [attention(after).input_value(port).get_node().get_type_name() for port in (1, 2)] == ["Concat", "Concat"]


def half(*, query: str, key: str, value: str) -> openvino.Model:
    """Attention in f32 over operands of the given types."""
    kinds = {"query": query, "key": key, "value": value}
    operands = {name: ops.parameter([-1, 4, -1, 8], getattr(openvino.Type, kind)) for name, kind in kinds.items()}
    for name, operand in operands.items():
        operand.output(0).set_names({name})
    wide = {name: ops.convert(operand, "f32") for name, operand in operands.items()}
    product = ops.matmul(
        ops.softmax(ops.matmul(wide["query"], wide["key"], False, True), -1), wide["value"], False, False
    )
    product.output(0).set_names({"attended"})
    return openvino.Model([ops.result(product)], list(operands.values()))


@pytest.mark.parametrize(
    ("query", "key", "value", "expected"),
    [
        ("f16", "f16", "f16", "f16"),
        # As CodeGen exports it: what is in the cache decides.
        ("f32", "f16", "f16", "f16"),
        # What is f32 in the cache is not cut down.
        ("f16", "f32", "f32", "f32"),
        ("f16", "f32", "f16", "f32"),
        ("f16", "f16", "f32", "f32"),
        ("f32", "f32", "f32", "f32"),
    ],
)
def test_key_and_value_decide_the_type(query, key, value, expected):
    before = half(query=query, key=key, value=value)
    after, _, notes = fused(before.clone())
    assert notes == ()
    assert types(attention(after)) == {expected}
    random = numpy.random.default_rng(0)
    given = {
        port.get_any_name(): random.standard_normal([2, 4, 3, 8]).astype(port.get_element_type().to_dtype())
        for port in before.inputs
    }
    wanted, found = infer(before, given)["attended"], infer(after, given)["attended"]
    assert wanted.dtype == found.dtype
    numpy.testing.assert_allclose(found, wanted, atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize(
    "scale", [Scale(0.25), Scale(0.25, "query", source="vector"), Scale(0, divides=True, source="shape")], ids=str
)
@pytest.mark.parametrize("how", ["add", "chosen"])
def test_attention_in_bf16_computes_the_same(scale, how):
    """Constants of bf16 must not be read as f16, which is how OpenVINO shows them to numpy."""
    lowest = float(numpy.finfo(numpy.float32).min) / 2
    form = Form((scale,), (Mask("11LS", how, lowest),), True, element_type="bf16", softmax_type="bf16")
    before = with_f32_ports(build(form))
    after, _, notes = fused(before.clone())
    assert notes == ()
    assert types(attention(after)) == {"bf16"}
    given, sees = feeds(form, before, Sizes(), 3)
    expected, found = infer(before, given)["attended"], infer(after, given)["attended"]
    assert numpy.isfinite(found).all()
    numpy.testing.assert_allclose(found[sees], expected[sees], atol=3e-2, rtol=3e-2)


def with_f32_ports(model: openvino.Model) -> openvino.Model:
    """The model with f32 instead of bf16 outside, since numpy has no bf16."""
    outside = openvino.preprocess.PrePostProcessor(model)
    for number, port in enumerate(model.inputs):
        if port.get_element_type() == openvino.Type.bf16:
            outside.input(number).tensor().set_element_type(openvino.Type.f32)
    outside.output(0).tensor().set_element_type(openvino.Type.f32)
    changed: openvino.Model = outside.build()
    changed.outputs[0].set_names({"attended"})
    return changed


def test_different_types_stay():
    form = Form(past=True, element_type="f32", softmax_type="f16", wide_value=True)
    _, found, (note,) = fused(build(form))
    assert "ScaledDotProductAttention" not in found
    assert "its operands are of different types: f16, f32" in note


def test_quantized_operands_stay():
    inputs = [ops.parameter([-1, 4, -1, 8], kind) for kind in (numpy.int8, numpy.int8, numpy.float32)]
    scores = ops.matmul(inputs[0], inputs[1], False, True)
    weights = ops.softmax(ops.convert(scores, "f32"), -1)
    model = openvino.Model([ops.result(ops.matmul(weights, inputs[2], False, False))], inputs)
    _, found, (note,) = fused(model)
    assert "ScaledDotProductAttention" not in found
    assert "is between its scores and its Softmax" in note
