"""Tables of cosines are recognized as rounded as the reference rounds them, and no further."""

from __future__ import annotations

import numpy
import pytest

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.constants import Table
from graphpass.dialects.rounding import MOVES_BY
from graphpass.verify.structure.angles import AngleTables

FREQUENCIES = (10000.0 ** -(numpy.arange(16) / 16)).astype(numpy.float32)
ROW, COLUMN = ex.index("row", ex.number(300)), ex.index("column", ex.number(16))


def is_recognized(tables: AngleTables, half: str, exponent: int) -> bool:
    """Return whether cosines are, whose parts below ``2**exponent`` of each power of two are rounded off."""
    cosines = numpy.cos(numpy.arange(300)[:, None] * FREQUENCIES.astype(numpy.float64))
    mantissas, exponents = numpy.frexp(cosines)
    rounded = numpy.ldexp(numpy.round(mantissas * 2.0**-exponent) * 2.0**exponent, exponents)
    read = ex.read(Table("frequencies", FREQUENCIES), (COLUMN,), "real")
    tables.note(ex.make("times", (ex.ONE, ROW, read), "real"))
    return tables.element(rounded.astype(numpy.float32), half, f"{half} {exponent}", (ROW, COLUMN)) is not None


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_rounded_tables(half):
    bits = MOVES_BY[half]
    assert is_recognized(AngleTables({half}), half, bits)
    assert not is_recognized(AngleTables({half}), half, bits + 2)
    assert not is_recognized(AngleTables(), half, bits)
