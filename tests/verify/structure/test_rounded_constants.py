"""Constants in f16 or bf16, and the f32 constants that they are rounded from."""

from __future__ import annotations

import numpy
import onnx.parser
import pytest
from mutants import attributes, moves, triggers  # noqa: F401 - registers their faults
from support.loaded import converted, exported
from verify.structure.comparing import is_equal, unequal
from verify.structure.composed_constants import FIRST, SECOND, element, name_and_place

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify.structure.proof import compare_structures


@pytest.mark.parametrize("place", ["llama/onnx", "qwen3_moe/onnx"])
def test_results_in_f16_are_equal_but_for_rounding(place):
    reference = exported(place)
    result = converted(reference, "ort{precision=f16}").model
    found = compare_structures(reference, result)
    assert found is not None
    assert found.equal == found.operators > 0
    assert found.assumed == ("rounding to f16 is ignored",)
    mutant = result.clone()
    weight = next(
        node.outputs[0]
        for node in mutant.graph.of_op("Constant")
        if (node.outputs[0].element_type, len(node.outputs[0].shape)) == ("f16", 2)
    )
    held = mutant.graph.constant(weight, 1 << 20).copy()
    held.flat[3] = numpy.nextafter(held.flat[3], numpy.float16(10))
    rewriter = mutant.rewriter()
    rewriter.redirect_uses(weight, rewriter.under("fault").constant(held, element_type="f16"))
    rewriter.finish()
    assert unequal(reference, mutant, unpadded=True)


def test_one_product_in_f16_is_a_difference():
    reference = exported("llama/onnx")
    faulty = reference.clone()
    rewriter = faulty.rewriter()
    product = list(faulty.graph.of_op("MatMul"))[3]
    write = rewriter.under("fault")
    halves = [write.convert(value, "f16") for value in product.inputs]
    rewriter.replace(product.outputs[0], write.convert(write.op("MatMul", *halves), "f32"))
    rewriter.finish()
    found = compare_structures(reference, faulty)
    assert found is not None
    assert found.equal < found.operators
    assert found.assumed == ()


@pytest.mark.parametrize("half", ["f16", "f32"])
def test_products_of_quantized_weights_round_as_others(half):
    """Rounding is neutral in the type of the reference's products, whether weights are quantized or not."""
    models = [quantized_product(kind) for kind in (half, "f32")]
    assert is_equal(*models)


def quantized_product(kind):
    """Return a MatMulNBits in f16 or f32; its result is read twice, because a result read once would be a cache."""
    element = {"f16": ("float16", 10), "f32": ("float", 1)}[kind]
    text = f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    graph (float[batch, length, 16] hidden) => (float[batch, length, 4] logits)
    <uint8[2, 1, 8] weight = {{{", ".join(map(str, range(16)))}}}, float[2] wide = {{0.5, 0.25}}> {{
        x = Cast <to = {element[1]}> (hidden)
        scales = Cast <to = {element[1]}> (wide)
        y = com.microsoft.MatMulNBits <K = 16, N = 2, bits = 4, block_size = 16> (x, weight, scales)
        z = Cast <to = 1> (y)
        logits = Concat <axis = -1> (z, z)
    }}"""
    return OnnxModel(onnx.parser.parse_model(text))


@pytest.mark.parametrize(
    ("made", "index", "expected"),
    [
        (SECOND[None], (0, 5, 6), ("second", 5, 6)),
        (SECOND.T.copy(), (6, 5), ("second", 5, 6)),
        (numpy.concatenate([SECOND, FIRST]), (96, 0), ("first", 0, 0)),
    ],
)
def test_elements_of_f16_constants_are_rounded(made, index, expected):
    stored = made.astype(numpy.float16)
    assert name_and_place(element(stored, index, "f16")) == expected
    assert name_and_place(element(stored, index))[0] == "made"


def test_a_differently_rounded_constant_is_opaque():
    stored = SECOND.astype(numpy.float16)
    stored[5, 6] = numpy.nextafter(stored[5, 6], numpy.float16(9))
    assert name_and_place(element(stored, (5, 6), "f16"))[0] == "made"
