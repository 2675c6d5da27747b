"""The table of element types against the packages that define them."""

import numpy
import onnx
import openvino
import pytest

from graphpass.ir.element_types import ELEMENT_TYPES, element_bytes


@pytest.mark.parametrize("name", sorted(ELEMENT_TYPES))
def test_types_have_the_codes_of_onnx_and_the_names_of_openvino(name):
    element = ELEMENT_TYPES[name]
    assert element.code in onnx.TensorProto.DataType.values()
    if element.dtype is not None:
        assert onnx.helper.tensor_dtype_to_np_dtype(element.code) == numpy.dtype(element.dtype)
        assert numpy.dtype(element.dtype).itemsize == element_bytes(name)
    if (native := getattr(openvino.Type, name, None)) is not None:
        assert (native.to_string(), name == "string" or native.bitwidth == element.bits) == (name, True)


def test_sizes_below_a_byte_and_of_unknown_types():
    assert [element_bytes(name) for name in ("u4", "i2", "dynamic")] == [0.5, 0.25, 0]
    assert len({element.code for element in ELEMENT_TYPES.values()}) == len(ELEMENT_TYPES)
