"""Numbers in place of indices, lengths and inputs."""

import numpy
import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.evaluate import arrays_at


@pytest.mark.parametrize("number", range(8))
def test_a_product_is_masked_if_a_factor_is(number):
    """The order of factors depends on their names."""
    place, length = ex.index("place", ex.number(4)), ex.length(f"length {number}")
    product = ex.multiply(ex.read(Table(number, numpy.array([5, 7])), (place,), "int"), length)
    numbers = arrays_at(product, {place: numpy.arange(4), length: numpy.full(4, 3)})
    assert numbers.tolist() == [15, 21, None, None]
