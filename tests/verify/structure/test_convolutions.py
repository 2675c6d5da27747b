"""Convolutions are equal if all of their numbers are: in both dialects, and fused with a cache or not."""

import numpy
import pytest
from verify.structure.comparing import is_equal, model_of_operator, read_by_openvino

from graphpass.testing import parse_model, run, tiny_model
from graphpass.verify.structure.proof import compare_structures

RANDOM = numpy.random.default_rng(0)
F32 = 1

#: Weights and attributes of Conv over [batch, length, 4], with ``length`` channels of 4 places, or 4 channels.
FORMS = {
    "one channel": ((3, 1, 2), {}),
    "depthwise": ((6, 1, 2), {"group": 6}),
    "two groups": ((4, 3, 2), {"group": 2}),
    "padded": ((4, 6, 3), {"pads": [1, 2]}),
    "strided and dilated": ((4, 6, 2), {"strides": [2], "dilations": [2]}),
}


def convolution(shape, bias=False, **attributes):
    channels = shape[1] * attributes.get("group", 1)
    model = model_of_operator(
        "Conv",
        F32,
        RANDOM_WEIGHTS[shape],
        *([numpy.arange(shape[0], dtype=numpy.float32)] if bias else []),
        **attributes,
    )
    model.proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = channels
    model.mark_edited()
    return model


RANDOM_WEIGHTS = {shape: RANDOM.standard_normal(shape, numpy.float32) for shape, _ in FORMS.values()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bias", [False, True])
def test_both_dialects_define_the_same_convolution(form, bias):
    shape, attributes = FORMS[form]
    model = convolution(shape, bias, **attributes)
    assert is_equal(model, read_by_openvino(model))


def of_text(*lines):
    operands = "%x = Parameter : f32[b, 6, n]", "%w = Constant : f32[4, 6, 3]"
    return parse_model("\n".join([*operands, *lines, "Result(%y) {name=logits}"]))


@pytest.mark.parametrize(("before", "after"), [(1, 2), (0, 3), (3, 0)])
def test_padding_is_that_of_a_pad(before, after):
    padded = of_text(f"%y = onnx.Conv(%x, %w) {{pads=[{before}, {after}]}}")
    apart = [f"%p = Pad(%x, [0, 0, {before}], [0, 0, {after}])", "%y = onnx.Conv(%p, %w)"]
    assert is_equal(padded, of_text(*apart))
    assert not is_equal(padded, of_text(apart[0].replace(f"[0, 0, {after}]", "[0, 0, 1]"), apart[1]))


@pytest.mark.parametrize(
    ("attribute", "value"), [("pads", [2, 1]), ("pads", [1, 1]), ("strides", [2]), ("dilations", [2])]
)
def test_one_changed_attribute_is_found(attribute, value):
    shape, attributes = FORMS["padded"]
    model = convolution(shape, **attributes)
    assert not is_equal(model, convolution(shape, **{**attributes, attribute: value}))


def test_automatic_padding_has_no_definition():
    shape = FORMS["padded"][0]
    model = convolution(shape, auto_pad="SAME_UPPER")
    assert not is_equal(model, read_by_openvino(model))


def test_a_fused_convolution_with_its_state_is_proven():
    reference = tiny_model("lfm2", layers=2)
    fused = run(reference, "fuse-causal-conv")
    assert any(True for _ in fused.graph.of_op("CausalConvWithState"))
    proof = compare_structures(reference, fused)
    assert proof is not None
    assert proof.is_complete
