"""Round numbers to the element types of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from graphpass.ir.element_types import ELEMENT_TYPES

if TYPE_CHECKING:
    import numpy

Array: TypeAlias = "numpy.ndarray[Any, Any]"

#: numpy's dtype of each supported element type; bf16 is stored as rounded f32.
DTYPES = {element_type.name: element_type.dtype for element_type in ELEMENT_TYPES.values() if element_type.dtype} | {
    "bf16": "float32"
}

#: Largest integer up to which a type represents every integer exactly.
EXACT_UP_TO = {"f16": 2**11, "bf16": 2**8}


def typed(values: Array, element_type: str) -> Array:
    """Return an array in numpy's dtype of an element type; bf16 as rounded f32.

    Args:
        values: Numbers or booleans, possibly masked.
        element_type: A key of `DTYPES`.
    """
    import numpy

    # Casting infinity to integers is undefined; bucketed distances cast log(0), which a Where drops.
    with numpy.errstate(invalid="ignore", over="ignore"):
        cast = values.astype(DTYPES[element_type], copy=False)
    if element_type != "bf16":
        return cast
    bits = numpy.ma.getdata(cast).view(numpy.uint32).astype(numpy.uint64)
    # Round to the upper 16 bits, to nearest, ties to even.
    nearest = (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)
    result = numpy.where(numpy.isfinite(numpy.ma.getdata(cast)), nearest, numpy.ma.getdata(cast))
    return numpy.ma.array(result, mask=cast.mask) if isinstance(cast, numpy.ma.MaskedArray) else result


def rounded_to(element_type: str, value: float | Array) -> Any:
    """Return a number, or an array, rounded to an element type, in f64.

    Args:
        element_type: A key of `DTYPES`, such as ``f16``.
        value: A number, which becomes a float, or an array of any shape.
    """
    import numpy

    array = numpy.asanyarray(value, "float64")
    result = typed(array.reshape(-1), element_type).reshape(array.shape).astype("float64")
    return result if array.ndim else float(result)
