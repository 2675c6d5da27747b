"""Round numbers to types of 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy


def rounded(element_type: str, value: float | numpy.ndarray[Any, Any]) -> Any:
    """Return a number, or each of an array, rounded to f16 or bf16."""
    import numpy

    from graphpass.analysis.symbolic.arrays import typed

    given = numpy.asanyarray(value, "float64")
    with numpy.errstate(over="ignore"):
        held = numpy.ma.getdata(given).astype("float16" if element_type == "f16" else "float32")
    if element_type == "bf16":
        held = typed(held.reshape(-1), "bf16").reshape(held.shape)
    if isinstance(given, numpy.ma.MaskedArray):
        return numpy.ma.array(held.astype("float64"), mask=numpy.ma.getmaskarray(given))
    return held.astype("float64") if held.ndim else float(held)
