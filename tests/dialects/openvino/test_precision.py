"""Computation in f16 becomes f32; stored weights keep their type, and names stay with their values."""

import numpy
import openvino

from graphpass.dialects.openvino.precision import promote
from graphpass.testing import parse_model

MODEL = """%x = Parameter : f16[2, 8]
%s = ReadValue {variable=s} : f16[2, 8]
%w = Constant : f16[8, 8]
%one = Constant : f16[8]
%a = MatMul(%x, %w)
%b = Add(%a, %one)
%y = Add(%b, %s)
Assign(%y) {variable=s}"""


def parsed(text):
    return parse_model(f"{text}\nResult(%y) {{name=y}}", "openvino")


def promoted(text):
    model = parsed(text)
    counts = promote(model.ov_model)
    model.mark_edited()
    return model, counts


def types(model):
    return {node.name: node.outputs[0].element_type for node in model.graph.nodes if node.outputs}


def test_inputs_variables_and_operators_become_f32_and_weights_stay():
    model, counts = promoted(MODEL)
    found = types(model)
    assert {found[name] for name in ("x", "a", "b", "y", "s")} == {"f32"}
    assert found["w"] == "f16"
    assert counts == {"inputs": 1, "variables": 1, "weights": 1, "constants": 1}


def test_a_model_without_halves_is_unchanged():
    assert promoted(MODEL.replace("f16", "f32"))[1] == {}


def test_the_same_numbers_are_computed():
    text = MODEL.replace("%y = Add(%b, %s)", "%y = Relu(%b)").replace("%s = ReadValue {variable=s} : f16[2, 8]\n", "")
    text = text.replace("Assign(%y) {variable=s}", "")
    x = numpy.random.default_rng(0).standard_normal([2, 8]).astype(numpy.float16)
    compiled = [openvino.Core().compile_model(model.ov_model, "CPU") for model in (parsed(text), promoted(text)[0])]
    half, whole = compiled[0](x)["y"], compiled[1](x.astype(numpy.float32))["y"]
    assert (half.dtype, whole.dtype) == (numpy.float16, numpy.float32)
    numpy.testing.assert_allclose(half, whole, atol=1e-2)


def test_redundant_converts_are_gone_but_names_of_inputs_are_not_shared():
    text = "%x = Parameter : f16[2]\n%a = Convert(%x) {to=f32}\n%b = Relu(%a)\n%y = Convert(%b) {to=f16}"
    model, counts = promoted(text)
    assert counts["converts gone"] == 2
    assert [node.op for node in model.graph.nodes] == ["Parameter", "Relu", "Result"]
    kept, _ = promoted("%x = Parameter : f32[2]\n%y = Convert(%x) {to=f16}")
    assert (kept.ov_model.input(0).get_names(), kept.ov_model.output(0).get_names()) == ({"x"}, {"y"})
    assert [node.op for node in kept.graph.nodes] == ["Parameter", "Convert", "Result"]


def test_layout_of_weights_follows_their_convert():
    text = "%x = Parameter : f16[2, 8]\n%w = Constant : f16[8, 8]\n%t = Transpose(%w, [1, 0])\n%y = MatMul(%x, %t)"
    model, _ = promoted(text)
    (turned,) = model.graph.of_op("Transpose")
    assert model.graph.producer(turned.source()).op == "Convert"
    assert types(model)["t"] == "f32"


def test_quantized_weights_stay_in_integers():
    weight = "%w = Constant : i8[8, 8]\n%h = Convert(%w) {to=f16}\n%scale = Constant : f16[8, 8]\n"
    text = "%x = Parameter : f16[2, 8]\n" + weight + "%d = Multiply(%h, %scale)\n%y = MatMul(%x, %d)"
    model, counts = promoted(text)
    assert types(model)["w"] == "i8"
    assert counts["quantized weights"] == 1


def test_constants_that_are_rounded_to_f16_are_read_in_f32():
    text = "%x = Parameter : f16[2]\n%c = Constant : f32[2]\n%h = Convert(%c) {to=f16}\n%y = Multiply(%x, %h)"
    model, _ = promoted(text)
    compiled = openvino.Core().compile_model(model.ov_model, "CPU")
    (constant,) = model.graph.of_op("Constant")
    exact = model.graph.constant(constant.outputs[0])
    assert (exact != exact.astype(numpy.float16)).all()
    assert compiled(numpy.ones(2, numpy.float32))["y"].tolist() == exact.tolist()
    assert not list(model.graph.of_op("Convert"))
