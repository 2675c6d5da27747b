"""Numbers in the element types of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from graphpass.ir.element_types import ELEMENT_TYPES

if TYPE_CHECKING:
    import numpy

Array: TypeAlias = "numpy.ndarray[Any, Any]"

#: Element types that are computed with; numpy does not know bf16, whose numbers are rounded f32.
DTYPES = {one.name: one.dtype for one in ELEMENT_TYPES.values() if one.dtype} | {"bf16": "float32"}


def typed(values: Array, element_type: str) -> Array:
    """Return ``values`` in numpy's type for ``element_type``; those of bf16 are f32 rounded to it."""
    import numpy

    # Infinite numbers have no integer: bucketed distances of 0 have such logarithms, which a Where drops.
    with numpy.errstate(invalid="ignore", over="ignore"):
        cast = values.astype(DTYPES[element_type], copy=False)
    if element_type != "bf16":
        return cast
    bits = numpy.ma.getdata(cast).view(numpy.uint32).astype(numpy.uint64)
    # To the nearest number that the upper 16 bits can hold, of two to the even one.
    nearest = (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)
    found = numpy.where(numpy.isfinite(numpy.ma.getdata(cast)), nearest, numpy.ma.getdata(cast))
    return numpy.ma.array(found, mask=cast.mask) if isinstance(cast, numpy.ma.MaskedArray) else found


def rounded(element_type: str, value: float | Array) -> Any:
    """Return a number, or each of an array, rounded to ``element_type``, in f64."""
    import numpy

    given = numpy.asanyarray(value, "float64")
    held = typed(given.reshape(-1), element_type).reshape(given.shape).astype("float64")
    return held if given.ndim else float(held)
