"""Numbers in the element types of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from graphpass.ir.element_types import ELEMENT_TYPES

if TYPE_CHECKING:
    import numpy

Array: TypeAlias = "numpy.ndarray[Any, Any]"

#: Element types that are computed with; numpy does not know bf16, whose numbers are rounded f32.
DTYPES = {element_type.name: element_type.dtype for element_type in ELEMENT_TYPES.values() if element_type.dtype} | {
    "bf16": "float32"
}


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
    result = numpy.where(numpy.isfinite(numpy.ma.getdata(cast)), nearest, numpy.ma.getdata(cast))
    return numpy.ma.array(result, mask=cast.mask) if isinstance(cast, numpy.ma.MaskedArray) else result


def rounded(element_type: str, value: float | Array) -> Any:
    """Return a number, or each of an array, rounded to ``element_type``, in f64."""
    import numpy

    array = numpy.asanyarray(value, "float64")
    result = typed(array.reshape(-1), element_type).reshape(array.shape).astype("float64")
    return result if array.ndim else float(result)
