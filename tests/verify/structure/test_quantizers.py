"""Quantizers round to equal levels in both dialects, and to others with another type, scale or zero point."""

import pytest
from verify.structure.comparing import is_equal, model_of_function, read_by_openvino

STATES = "float[batch, length, 4] x"

QUANTIZED = """scale = Constant <value_float = %s> ()
    origin = Constant <value = %s {%d}> ()
    whole = QuantizeLinear (x, scale, origin)
    y = DequantizeLinear (whole, scale, origin)"""


def quantized(element_type: str = "int8", zero_point: int = 7, scale: float = 0.1):
    return model_of_function(QUANTIZED % (scale, element_type, zero_point), STATES)


@pytest.mark.parametrize("other", [quantized("uint8"), quantized(zero_point=6), quantized(scale=0.2)])
def test_other_levels_are_not_equal(other):
    assert is_equal(quantized(), quantized())
    assert is_equal(other, other.clone())
    assert not is_equal(quantized(), other)


def test_a_quantizer_is_not_the_identity():
    assert not is_equal(model_of_function("y = Identity (x)", STATES), quantized())


@pytest.mark.parametrize("origin", [("int8", -100), ("uint8", 117), ("uint16", 40000)])
def test_quantizers_are_equal_in_openvino(origin):
    """OpenVINO's frontend computes the bounds of a FakeQuantize in f32."""
    model, other = (quantized(origin[0], place) for place in (origin[1], origin[1] + 1))
    assert is_equal(model, read_by_openvino(model))
    assert not is_equal(model, read_by_openvino(other))


def listed(numbers) -> str:
    return ", ".join(map(str, numbers))


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_are_equal_in_openvino(axis):
    sizes = [64, 96]
    scales = [size // 16 if place == axis else size for place, size in enumerate(sizes)]
    places = range(scales[0] * scales[1])

    def model(factor: float):
        body = f"""
            whole = Constant <value = uint8[64, 96] {{{listed(place % 251 for place in range(64 * 96))}}}> ()
            scales = Constant <value = float{scales} {{{listed(1 + factor * (place % 7) for place in places)}}}> ()
            origin = Constant <value = uint8{scales} {{{listed(place % 5 for place in places)}}}> ()
            weight = DequantizeLinear <axis = {axis}, block_size = 16> (whole, scales, origin)
            y = MatMul(x, weight)"""
        return model_of_function(body, "float[rows, columns, 64] x", opset=21)

    reference = model(0.5)
    assert is_equal(reference, read_by_openvino(reference))
    assert not is_equal(reference, model(0.25))
