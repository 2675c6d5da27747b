"""Elements of constants: read from weights with equal contents, whatever their names."""

import numpy
import pytest
from verify.structure.composed_constants import holding

from graphpass.analysis.symbolic import expressions as ex
from graphpass.verify.structure.angles import AngleTables
from graphpass.verify.structure.constants import Constants
from graphpass.verify.structure.weights import SMALL, WeightDigests

LARGE = numpy.random.default_rng(0).standard_normal((96, 1, 64), numpy.float32)
ROW, COLUMN, ZERO = ex.index("i", ex.number(96)), ex.index("j", ex.number(64)), ex.ZERO


def elements(index, *arrays):
    """Return an element of a constant in each of two models, under different names."""
    models = [holding(**{name: array}) for name, array in zip(("first", "second"), arrays, strict=True)]
    constants = Constants(AngleTables(), WeightDigests(models))
    return [constants.element(model.graph, next(model.graph.of_op("Constant")).outputs[0], index) for model in models]


def test_constants_of_equal_contents_have_equal_elements():
    one, other = elements((ROW, ZERO, COLUMN), LARGE, LARGE.copy())
    assert one is other
    # The axis of size 1 has no index.
    assert one.args[1:] == (ROW, COLUMN)


@pytest.mark.parametrize("changed", [LARGE + numpy.float32(1e-3), LARGE.astype(numpy.float16), LARGE[::-1].copy()])
def test_other_contents_or_types_have_other_elements(changed):
    one, other = elements((ROW, ZERO, COLUMN), LARGE, changed)
    assert one is not other


@pytest.mark.parametrize("array", [numpy.zeros(SMALL, numpy.float32), numpy.zeros((96, 64), bool), numpy.float32(3)])
def test_small_and_boolean_constants_are_not_read_as_weights(array):
    assert elements((ROW, COLUMN)[: array.ndim], array, array) == [None, None]


def test_integers_are_read_as_integers():
    numbers = numpy.arange(96 * 64).reshape(96, 64)
    whole, real = elements((ROW, COLUMN), numbers, numbers.astype(numpy.float32))
    assert (whole.sort, real.sort) == ("int", "real")
