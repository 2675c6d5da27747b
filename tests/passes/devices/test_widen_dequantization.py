"""widen-dequantization: weights in groups of other sizes than kernels support are dequantized in f32."""

import numpy
import pytest
from support.attention_graphs import infer

from graphpass.targets.npu.weights import not_widened
from graphpass.testing import parse_model, run

MODEL = """%x = Parameter : f32[?, 128]
%weight = Constant : {kind}[4, {groups}, {size}]
%integers = Convert(%weight) {{to={half}}}
%stored = Constant : {kind}[1]
%zeros = Convert(%stored) {{to={half}}}
%difference = Subtract(%integers, %zeros)
%scales = Constant : {half}[4, {groups}, 1]
%product = Multiply(%difference, %scales)
%rows = Reshape(%product, [4, 128])
%wide = Convert(%rows) {{to=f32}}
%y = MatMul(%x, %wide) {{transpose_b=true}}
Result(%y) {{name=y}}"""


def model_of(size, half="f16", kind="u4"):
    return parse_model(MODEL.format(size=size, groups=128 // size, half=half, kind=kind), "openvino")


@pytest.mark.parametrize("size", [16, 32])
def test_weights_in_small_groups_are_dequantized_in_f32(size):
    model = model_of(size)
    assert [*not_widened(model.graph)]
    result = run(model, "widen-dequantization")
    assert not [*not_widened(result.graph)]
    assert {node.outputs[0].element_type for node in result.graph.of_op("Subtract", "Multiply", "Reshape")} == {"f32"}
    x = numpy.random.default_rng(0).standard_normal((3, 128), numpy.float32)
    before, after = (infer(each.ov_model, {"x": x})["y"] for each in (model, result))
    numpy.testing.assert_allclose(after, before, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("size", [16, 32])
def test_weights_without_zero_points(size):
    text = "\n".join(line for line in MODEL.splitlines() if not line.startswith(("%stored", "%zeros", "%difference")))
    text = text.replace("%difference", "%integers").format(size=size, groups=128 // size, half="f16", kind="i4")
    model = parse_model(text, "openvino")
    assert [*not_widened(model.graph)]
    result = run(model, "widen-dequantization")
    assert not [*not_widened(result.graph)]
    x = numpy.random.default_rng(0).standard_normal((3, 128), numpy.float32)
    before, after = (infer(each.ov_model, {"x": x})["y"] for each in (model, result))
    numpy.testing.assert_allclose(after, before, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(("size", "half", "kind"), [(64, "f16", "u4"), (32, "f32", "u4"), (32, "f16", "u8")])
def test_other_weights_are_unchanged(size, half, kind):
    model = model_of(size, half, kind)
    result = run(model, "widen-dequantization")
    assert result.digest() == model.digest()
