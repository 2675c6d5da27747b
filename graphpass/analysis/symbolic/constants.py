"""Elements of constants: closed forms of scalars, ranges and bands, reads of other tables."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphpass.analysis.symbolic.bounds import divided
from graphpass.analysis.symbolic.expressions import (
    TRUE,
    Expr,
    add,
    at_most,
    choose,
    conjunction,
    floor_divide,
    modulo,
    multiply,
    negate,
    number,
    read,
)
from graphpass.ir.graph import Graph, Value
from graphpass.ir.values import INTEGERS, REALS

if TYPE_CHECKING:
    import numpy


#: Maximum number of elements of a constant that is read: those of a mask ``[4096, 4096]``.
LARGEST_MASK = 1 << 24


@dataclass(frozen=True, slots=True)
class Table:
    """A constant that expressions read; tables with equal digests are equal.

    Attributes:
        digest: Hash of shape, dtype and elements; a unique value for a computed array.
        elements: The elements.
    """

    digest: Hashable
    elements: numpy.ndarray = field(compare=False, repr=False)

    @property
    def least(self) -> int | None:
        """Return the smallest element of integers; ``None`` for other types."""
        import numpy

        # Unknown sizes are masked and have the value 0.
        elements = numpy.ma.getdata(self.elements)
        return int(elements.min()) if elements.size and elements.dtype.kind in "iu" else None


def read_numbers(graph: Graph, value: Value) -> numpy.ndarray | None:
    """Return the elements of a constant, with at most `LARGEST_MASK` elements.

    Args:
        graph: Graph of the constant.
        value: Output of a Constant.

    Returns:
        The elements, bf16 as f32. ``None`` if it cannot be read, or its bytes are not the elements: several in a byte,
        or reals of 8 bits.
    """
    try:
        constant = graph.constant(value, LARGEST_MASK)
    except FileNotFoundError:
        return None
    is_number = value.element_type in INTEGERS | REALS | {"boolean", "dynamic"}
    is_whole = constant is not None and value.shape in {None, constant.shape}
    if constant is None or not is_number or not is_whole:
        return None
    # NumPy has no real type of that name, so the elements would be read as integers.
    return constant.astype("float32") if value.element_type == "bf16" else constant


def constant_element(graph: Graph, value: Value, index: tuple[Expr, ...]) -> Expr | None:
    """Return an element of a constant.

    Args:
        graph: Graph of the constant.
        value: Output of a Constant, as `read_numbers` reads.
        index: Index along each axis; ignored for a constant of one element.

    Returns:
        The element; ``None`` if the constant cannot be read, has another rank, or ends before the index.
    """
    constant = read_numbers(graph, value)
    return None if constant is None else element_of(constant, index)


def element_of(constant: numpy.ndarray, index: tuple[Expr, ...]) -> Expr | None:
    """Return an element of an array; arguments and result as in `constant_element`.

    Args:
        constant: Numbers or booleans.
        index: Index along each axis.
    """
    if not constant.size:
        return None
    if constant.size == 1:
        return _number(constant.flat[0])
    if constant.ndim != len(index):
        return None
    places = [expr.as_number for expr in index]
    if None not in places:
        at = tuple(int(place or 0) for place in places)
        inside = all(0 <= place < size for place, size in zip(at, constant.shape, strict=True))
        return _number(constant[at]) if inside else None
    squeezed = tuple(expr for expr, size in zip(index, constant.shape, strict=True) if size != 1)
    flat = constant.reshape([size for size in constant.shape if size != 1])
    if (flat == flat.flat[0]).all():
        return _number(flat.flat[0])
    if flat.ndim == 1 and flat.dtype.kind in "iuf":
        known = _range(flat, squeezed[0]) or _repeated(flat, squeezed[0])
        if known is not None:
            return known
    if flat.ndim == 2 and (known := _band(flat, squeezed)) is not None:
        return known
    sort = {"b": "bool", "f": "real"}.get(flat.dtype.kind, "int")
    digest = hashlib.sha256(repr((flat.shape, flat.dtype.str)).encode() + flat.tobytes()).hexdigest()
    return read(Table(digest, flat), squeezed, sort)  # type: ignore[arg-type]


def _number(element: numpy.generic) -> Expr:
    return number(element.item())


def _range(flat: numpy.ndarray, place: Expr) -> Expr | None:
    """Return the element at ``place`` of an arithmetic progression of integers."""
    exact = flat.astype("float64")
    if not (abs(exact) < 2**53).all():
        return None
    steps = exact[1:] - exact[:-1]
    if not (steps == steps[0]).all() or steps[0] != int(steps[0]) or flat[0] != int(flat[0]):
        return None
    return add(number(int(flat[0])), multiply(number(int(steps[0])), place))


def _repeated(flat: numpy.ndarray, place: Expr) -> Expr | None:
    """Return the element at ``place`` of a progression with repeated elements or periods."""
    (changes,) = (flat[1:] != flat[:-1]).nonzero()
    (returns,) = (flat[1:] == flat[0]).nonzero()
    for width, is_each in ((int(changes[0]) + 1, True), (int(returns[0]) + 1 if returns.size else 0, False)):
        if width < 2 or flat.size % width:
            continue
        rows = flat.reshape(-1, width)
        rows = rows.T if is_each else rows
        if (rows == rows[0]).all() and rows[0].size > 1:
            parts = divided(place, number(width)) or (floor_divide(place, number(width)), modulo(place, number(width)))
            return _range(rows[0], parts[0 if is_each else 1])
    return None


def _band(flat: numpy.ndarray, index: tuple[Expr, ...]) -> Expr | None:
    """Return the element of a banded matrix of two values, chosen by ``column - row``."""
    import numpy

    first = flat.flat[0]
    marks = flat == first
    others = flat[~marks]
    if not (others == others[0]).all():
        return None
    rows, columns = flat.shape
    # Marks by ``column - row``, starting at the lower left corner.
    marked = numpy.concatenate([marks[::-1, 0], marks[0, 1:]])
    distances = numpy.arange(columns)[None, :] - numpy.arange(rows)[:, None]
    if not (marks == marked[distances + rows - 1]).all():
        return None
    is_marked = not (marked[0] and marked[-1])
    (places,) = numpy.nonzero(marked == is_marked)
    if places[-1] - places[0] + 1 != len(places):
        return None
    row, column = index
    least, most = (int(place) - rows + 1 for place in (places[0], places[-1]))
    inside = conjunction(
        at_most(add(row, number(least)), column) if places[0] > 0 else TRUE,
        at_most(column, add(row, number(most))) if places[-1] < len(marked) - 1 else TRUE,
    )
    condition = inside if is_marked else negate(inside)
    return choose(condition, _number(first), _number(others[0]))
