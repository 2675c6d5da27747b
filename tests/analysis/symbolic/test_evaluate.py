"""Numbers in place of indices, lengths and inputs."""

import math

import numpy
import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.evaluate import arrays_at, value_at


@pytest.mark.parametrize("number", range(8))
def test_a_product_is_masked_if_a_factor_is(number):
    """The order of factors depends on their names."""
    place, length = ex.index("place", ex.number(4)), ex.length(f"length {number}")
    product = ex.multiply(ex.read(Table(number, numpy.array([5, 7])), (place,), "int"), length)
    numbers = arrays_at(product, {place: numpy.arange(4), length: numpy.full(4, 3)})
    assert numbers.tolist() == [15, 21, None, None]


def test_integral_reals_beyond_int64_are_evaluated_on_arrays():
    place = ex.index("i", ex.number(4))
    largest = ex.number(float(numpy.finfo("f4").max))
    clipped = ex.apply("log", (ex.minimum(ex.maximum(place, ex.number(1)), largest),))
    assert arrays_at(clipped, {place: numpy.arange(4)}).tolist() == pytest.approx([0, 0, math.log(2), math.log(3)])


def test_functions_of_integers_beyond_int64_are_evaluated():
    place = ex.index("i", ex.number(4))
    sine = ex.apply("sin", (ex.multiply(place, ex.number(2**70)),))
    assert value_at(sine, {place: 3}, lambda *_: 0) == pytest.approx(math.sin(3 * 2.0**70))
