"""Numbers rounded to element types, against ml_dtypes and numpy."""

import ml_dtypes
import numpy
import pytest

from graphpass.analysis.symbolic.rounding import rounded_to, typed

NUMBERS = numpy.array([0.0, 1.0, 1.00390625, 1.01171875, -257.0, 3.4e38, 1e-40, numpy.inf, -numpy.inf, 65503.0])


@pytest.mark.parametrize(("element_type", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", numpy.float16)])
def test_halves_are_rounded_to_nearest_even(element_type, dtype):
    with numpy.errstate(over="ignore"):
        expected = NUMBERS.astype(numpy.float32).astype(dtype).astype(float)
    assert rounded_to(element_type, NUMBERS).tolist() == expected.tolist()
    assert rounded_to(element_type, 1.01171875) == expected[3]
    assert isinstance(rounded_to(element_type, 1.0), float)


def test_bf16_keeps_nan_and_masks():
    assert numpy.isnan(rounded_to("bf16", float("nan")))
    masked = typed(numpy.ma.array([1.00390625, 2.0], mask=[False, True]), "bf16")
    assert masked.mask.tolist() == [False, True]
    assert masked.dtype == numpy.float32


def test_integers_are_truncated_and_shapes_kept():
    assert rounded_to("i32", numpy.array([[1.9], [-1.9]])).tolist() == [[1.0], [-1.0]]
    assert typed(numpy.array([0.0, 2.0]), "boolean").tolist() == [False, True]
