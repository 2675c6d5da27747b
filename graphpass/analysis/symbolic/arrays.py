"""Compute whole tensors by the rules of operators.

An element of the output is one expression of its indices, evaluated for all indices at once. Unknown elements of
operands are masked, and results that depend on them too. numpy computes long sums and scatters at computed indices,
which do not have such an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from math import prod

import numpy

from graphpass.analysis.symbolic.constants import Table
from graphpass.analysis.symbolic.elements import Element, Index, Request, UnknownError
from graphpass.analysis.symbolic.evaluate import arrays_at
from graphpass.analysis.symbolic.expressions import Expr, Sort, index, number, read
from graphpass.analysis.symbolic.node_sizes import NodeSizes
from graphpass.analysis.symbolic.nodes import Identity
from graphpass.analysis.symbolic.rounding import Array, typed
from graphpass.analysis.symbolic.table import TABLE
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import is_foreign

#: Errors of incompatible operands, as in models for other lengths and in invalid graphs.
UNFIT = (IndexError, KeyError, OverflowError, TypeError, ValueError, ZeroDivisionError)

_SERIALS = count()


def is_known(node: Node) -> bool:
    """Return whether `computed` supports the operator of ``node``."""
    return not is_foreign(node) and (node.op in TABLE.elements or node.op in _BY_NUMPY)


def computed(graph: Graph, node: Node, port: int, known: Mapping[Value, Array], largest: int) -> Array | None:
    """Compute an output of ``node``.

    Args:
        graph: The graph.
        node: The operator.
        port: The output.
        known: Arrays of its operands; unknown elements are masked.
        largest: Most elements of the result.

    Returns:
        The tensor in numpy's dtype of the element type, bf16 as rounded f32; masked where it depends on unknown
        elements. ``None`` if it is too large, or if these operands or attributes are not supported.
    """
    value = node.outputs[port]
    try:
        with numpy.errstate(all="ignore"):
            by_numpy = _BY_NUMPY.get(node.op)
            if node.op in _REALS_BY_NUMPY and known[node.source()].dtype.kind == "f":
                by_numpy = _REALS_BY_NUMPY[node.op]
            if by_numpy is not None:
                operands = [known[value] for value in node.sources]
                result = None if any(map(numpy.ma.is_masked, operands)) else by_numpy(node, operands)
            else:
                return _by_table(graph, node, value, known, largest)
            return None if result is None or result.size > largest else typed(result, value.element_type)
    except (*UNFIT, UnknownError):
        return None


def _by_table(graph: Graph, node: Node, value: Value, known: Mapping[Value, Array], largest: int) -> Array | None:
    operands = _Operands(graph, known)
    shape = operands.sizes(node, value)
    if shape is None:
        return None
    places = {index(f"axis {axis}", number(size)): axis for axis, size in enumerate(shape) if size != 1}
    own = iter(places)
    place = tuple(number(0) if size == 1 else next(own) for size in shape)
    result = operands.write(Element(operands, node, value, place))
    if prod(shape) > largest and result.op != "number":
        return None
    spread = {
        place: numpy.arange(shape[axis]).reshape([-1 if dimension == axis else 1 for dimension in range(len(shape))])
        for place, axis in places.items()
    }
    array = arrays_at(result, spread)
    # A view: elements of a Broadcast are not copied.
    whole = numpy.broadcast_to(typed(numpy.ma.getdata(array), value.element_type), shape)
    if not numpy.ma.is_masked(array):
        return whole
    return numpy.ma.array(whole, mask=numpy.broadcast_to(numpy.ma.getmaskarray(array), shape))


class _Operands:
    """The operands of one operator, whose elements its rule reads."""

    def __init__(self, graph: Graph, known: Mapping[Value, Array]) -> None:
        self.graph = graph
        self._known = known
        self._tables: dict[Value, Table] = {}
        self._shapes: dict[Value, Index] = {}

    def sizes(self, node: Node, value: Value) -> list[int] | None:
        """Return the shape of an output; ``None`` if unknown."""
        sizes = NodeSizes(self.graph, self._known)
        for output in node.outputs[: value.port + 1]:
            shape = sizes.of_output(node, output)
            if shape is None:
                return None
            self._shapes[output] = shape
        known = [size.as_number for size in self._shapes[value]]
        return [int(size or 0) for size in known] if None not in known else None

    def shape(self, value: Value) -> Index:
        """Return the sizes of an operand or an output."""
        return self._shapes[value] if value in self._shapes else tuple(map(number, self._known[value].shape))

    def write(self, element: Element) -> Expr:
        """Return an element of an output as an expression of the operands' elements."""
        rule = TABLE.elements[element.node.op](element)
        answer: Expr | None = None
        try:
            while True:
                request: Request = rule.send(answer)  # type: ignore[arg-type] # a generator starts with None
                answer = self._read(*request)
        except StopIteration as stop:
            expr: Expr = stop.value
            return expr

    def _read(self, value: Value, place: Index) -> Expr:
        array = self._known[value]
        places = [expr.as_number for expr in place]
        if array.size == 1 and place:
            places = [0] * array.ndim
        if None not in places:
            at = tuple(int(place or 0) for place in places)
            if not (numpy.ma.is_masked(array) and numpy.ma.getmaskarray(array)[at]):
                return number(numpy.ma.getdata(array)[at].item())
        if value not in self._tables:
            self._tables[value] = Table((len(self._tables), Identity(next(_SERIALS))), array)
        sort: Sort = "bool" if array.dtype.kind == "b" else "real" if array.dtype.kind == "f" else "int"
        return read(self._tables[value], place, sort)


# By numpy


def _matmul(node: Node, inputs: Sequence[Array]) -> Array:
    first, second = inputs
    first = first.swapaxes(-1, -2) if node.attributes["transpose_a"] else first
    product: Array = numpy.matmul(first, second.swapaxes(-1, -2) if node.attributes["transpose_b"] else second)
    return product


def _scatter(node: Node, inputs: Sequence[Array]) -> Array | None:
    if "reduction" in node.attributes:
        return None
    data, indices, updates = inputs
    result = data.copy()
    result[tuple(numpy.moveaxis(indices, -1, 0))] = updates
    return result


def _scatter_elements(node: Node, inputs: Sequence[Array]) -> Array | None:
    if "reduction" in node.attributes:
        return None
    data, indices, updates = inputs[:3]
    places = list(numpy.ogrid[tuple(map(slice, indices.shape))])
    places[node.attributes["axis"]] = indices
    result = data.copy()
    result[tuple(places)] = updates
    return result


def _sum(node: Node, inputs: Sequence[Array]) -> Array | None:
    axes = inputs[1] if len(inputs) > 1 else node.attributes.get("axes")
    rank = node.outputs[0].rank
    keeps = node.attributes.get("keeps_axes", None if rank is None else rank == inputs[0].ndim)
    # Without axes ``noop_with_empty_axes`` decides, an attribute that `Graph` does not have.
    if axes is None or not numpy.size(axes) or keeps is None:
        return None
    total: Array = inputs[0].sum(axis=tuple(int(axis) for axis in numpy.reshape(axes, -1)), keepdims=keeps)
    return total


def _running_sum(node: Node, inputs: Sequence[Array]) -> Array:
    array, axis = inputs[0], int(inputs[1].item())
    is_reversed = bool(node.attributes.get("reverse"))
    array = numpy.flip(array, axis) if is_reversed else array
    total = array.cumsum(axis)
    total = total - array if node.attributes.get("exclusive") else total
    return numpy.flip(total, axis) if is_reversed else total


def _range(inputs: Sequence[Array]) -> Array | None:
    start, stop, step = (bound.item() for bound in inputs)
    return numpy.arange(start, stop, step) if step and abs(stop - start) <= _LONGEST * abs(step) else None


#: Maximum number of elements of a Range.
_LONGEST = 1 << 24

_BY_NUMPY: dict[str, Callable[[Node, Sequence[Array]], Array | None]] = {
    "Einsum": lambda node, inputs: numpy.einsum(node.attributes["equation"], *inputs),
    "MatMul": _matmul,
    "NonZero": lambda _node, inputs: numpy.array(numpy.nonzero(inputs[0])),
    "Range": lambda _node, inputs: _range(inputs),
    "ReduceSum": _sum,
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": _scatter,
}

#: Operators on real numbers without a rule in the table, which has prefix sums of integers and booleans only.
_REALS_BY_NUMPY: dict[str, Callable[[Node, Sequence[Array]], Array | None]] = {"CumSum": _running_sum}
