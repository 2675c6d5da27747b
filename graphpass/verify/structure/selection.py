"""Symbolic definitions of operators that select elements, and of sizes of slices."""

from __future__ import annotations

from collections.abc import Callable

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.elements import Element, Elements, Request, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.folding import fold_cuts
from graphpass.analysis.symbolic.operators.indexing import written_place
from graphpass.analysis.symbolic.places import index_along
from graphpass.analysis.symbolic.step import is_input
from graphpass.analysis.symbolic.table import TABLE
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.cuts import NO_END
from graphpass.ir.graph import Node
from graphpass.verify.structure.selected_places import TruePlaces
from graphpass.verify.structure.tensors import DefinedTensors, closed, definitions_of

#: Values of OpenVINO's attribute ``sort`` that order results by value.
_BY_VALUE = frozenset({"value", "score", "sorttype.sort_values"})


@closed
def _top(element: Element) -> Steps:
    """Return the n-th largest element of TopK (output 0) or its position (output 1)."""
    node, attributes = element.node, native_attributes(element.node)
    axis = int(attributes.get("axis", -1)) % len(element.index)
    size = element.shape(0)[axis]
    bound = ex.index("k", size)
    is_largest = bool(attributes.get("largest", 1)) and str(attributes.get("mode", "max")).lower().endswith("max")
    order = str(attributes.get("sort", "value")).lower() if attributes.get("sorted", 1) else "none"
    is_sorted = order in _BY_VALUE
    # ONNX selects the first of equal elements; OpenVINO does so if the attribute ``stable`` is set.
    is_stable = is_sorted and bool(attributes.get("stable", "mode" not in attributes))
    body = yield node.source(), element.index_with(axis, bound)
    # The result at an index depends on the number of results if they are not sorted by value.
    parameters = (is_largest, is_sorted, is_stable, None if is_sorted else (order, element.own_shape[axis]))
    result = definitions_of(element).top(body, bound, parameters)
    place = ex.read(result.args[0], (*result.args[1:], element.index[axis]), "int")
    return place if element.value.port else ex.substitute(body, {bound: place})


@closed
def _first_extreme(element: Element) -> Steps:
    """Return the position of the first largest (ArgMax) or smallest (ArgMin) element.

    Raises:
        UnknownError: ``select_last_index`` is set.
    """
    node, attributes = element.node, native_attributes(element.node)
    if attributes.get("select_last_index", 0):
        raise UnknownError("select_last_index = 1 has no definition")
    sizes, own = element.shape(0), list(element.index)
    axis = int(attributes.get("axis", 0)) % len(sizes)
    if not attributes.get("keepdims", 1):
        own.insert(axis, ZERO)
    bound = ex.index("k", sizes[axis])
    body = yield node.source(), (*own[:axis], bound, *own[axis + 1 :])
    result = definitions_of(element).top(body, bound, (node.op == "ArgMax", True, True, None))
    return ex.read(result.args[0], (*result.args[1:], ZERO), "int")


def _extreme_size(elements: Elements, node: Node, axis: int) -> Expr:
    attributes, sizes = native_attributes(node), list(elements.shape(node.source()))
    own = int(attributes.get("axis", 0)) % len(sizes)
    sizes[own : own + 1] = [ONE] if attributes.get("keepdims", 1) else []
    return sizes[axis]


def _one_hot(element: Element) -> Steps:
    """Return ``on`` at the index of the operand, else ``off``.

    Negative indices count from the end in ONNX, and in OpenVINO if ``negative_indices_mode`` is ``normalize``.
    """
    attributes = native_attributes(element.node)
    axis = int(attributes.get("axis", -1)) % len(element.index)
    own = element.index[axis]
    place = yield element.node.source(), (*element.index[:axis], *element.index[axis + 1 :])
    values = element.node.inputs[2:]
    if len(values) == 1:
        off, on = (yield element.node.source(2), (ZERO,)), (yield element.node.source(2), (ONE,))
    else:
        on, off = (yield element.node.source(2), ()), (yield element.node.source(3), ())
    counts_back = len(values) == 1 or str(attributes.get("negative_indices_mode", "")).lower() == "normalize"
    is_on = ex.equal(place, own)
    if counts_back and not is_natural(place):
        is_on = ex.disjunction(is_on, ex.equal(ex.add(place, element.own_shape[axis]), own))
    return ex.choose(is_on, on, off)


# Gather


def _gather(element: Element) -> Steps:
    """Return an element of Gather.

    Raises:
        UnknownError: An index may be negative, which only Gather-8 defines in OpenVINO, or an input may be larger than
            every index that the reference accepts.
    """
    steps = TABLE.elements["Gather"](element)
    place = yield next(steps)
    request = steps.send(place)
    is_fed = is_input(place)
    if _refuses_negatives(element.node) and not is_fed and not is_natural(place):
        raise UnknownError("devices differ in negative indices of this version of Gather")
    size = element.shape(0)[element.node.attributes["axis"] % len(element.shape(0))].as_number
    if is_fed and isinstance(size, int):
        _check_rows(element, str(place.args[0]), size)
    return (yield request)


def _refuses_negatives(node: Node) -> bool:
    """Return whether a Gather is of a version of OpenVINO before 8, without negative indices."""
    native = node.native
    return hasattr(native, "get_type_info") and native.get_type_info().version_id in {"opset1", "opset7"}


def _check_rows(element: Element, name: str, size: int) -> None:
    """Check that a table has a row for each index that the reference accepts.

    Args:
        element: The element of Gather.
        name: Name of the input with the indices.
        size: Number of rows.

    Raises:
        UnknownError: The table is of the candidate, and has fewer rows.
    """
    tensors = element.elements
    assert isinstance(tensors, DefinedTensors)
    rows = tensors.definitions.rows_of_inputs
    if not tensors.is_candidate:
        rows[name] = min(rows.get(name, size), size)
    elif size < rows.get(name, 0):
        raise UnknownError(f"it has {size} rows for {name}, and the reference {rows[name]}")


# NonZero


def _condition(elements: object, node: Node) -> tuple[Request, Callable[[Expr], TruePlaces]]:
    """Return the request for NonZero's operand, and a function from that element to the selection."""
    assert isinstance(elements, DefinedTensors)
    own, definitions = elements.own_index(node.source(), "p"), elements.definitions
    return (node.source(), own), lambda body: definitions.selection(definitions.algebra.normal(ex.holds(body)), own)


def _non_zero(element: Element) -> Steps:
    """Return the index along one axis of the n-th nonzero element.

    Raises:
        UnknownError: The axis is computed.
    """
    axis = element.index[0].as_number
    if not isinstance(axis, int):
        raise UnknownError("the first index of the result is computed")
    request, select = _condition(element.elements, element.node)
    return select((yield request)).place(axis, element.index[1])


def _non_zero_size(elements: Elements, node: Node, axis: int) -> Expr | None:
    if axis == 0:
        return number(len(elements.shape(node.source())))
    request, select = _condition(elements, node)
    return select(elements.of(*request)).count


# ScatterElements


@closed
def _scatter_elements(element: Element) -> Steps:
    """Return an element of ScatterElements along one axis.

    Updates of the same element must be added, or equal; otherwise their positions must be proven distinct.

    Raises:
        UnknownError: The reduction has no definition, or updates may write the same element or part of other axes.
    """
    node, attributes = element.node, native_attributes(element.node)
    definitions = definitions_of(element)
    axis = int(node.attributes.get("axis", 0)) % len(element.index)
    sizes, own = element.shape(1), element.own_shape
    if any(size is not whole for place, (size, whole) in enumerate(zip(sizes, own, strict=True)) if place != axis):
        raise UnknownError("updates do not cover the other axes")
    reduction = str(attributes.get("reduction", "none")).lower()
    adds = reduction in {"add", "sum"}
    if not adds and reduction != "none":
        raise UnknownError(f"no definition for reduction {reduction}")
    bound = index_along("w", sizes[axis])
    index = element.index_with(axis, bound)
    data = yield node.source(), element.index
    if adds and attributes.get("use_init_val", True) is False:
        data = ZERO
    place, written = written_place((yield node.source(1), index), own[axis]), (yield node.source(2), index)
    here, is_distinct = ex.equal(place, element.index[axis]), definitions.are_distinct(place, bound)
    if adds or (data is ZERO and is_distinct):
        return ex.add(data, definitions.sum_selected(ex.choose(here, written, ZERO), bound))
    if ex.contains([written], bound):
        if not is_distinct:
            raise UnknownError("different updates may write the same element")
        written = definitions.sum_selected(ex.choose(here, written, ZERO), bound)
    times = definitions.sum_selected(ex.choose(here, ONE, ZERO), bound)
    return ex.choose(ex.less(ZERO, times), written, data)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _first_extreme),
    "Gather": _gather,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "ScatterElementsUpdate": _scatter_elements,
    "TopK": _top,
}


def _one_hot_size(elements: Elements, node: Node, axis: int) -> Expr | None:
    sizes = elements.shape(node.source())
    own = int(native_attributes(node).get("axis", -1)) % (len(sizes) + 1)
    return None if axis == own else sizes[axis - (axis > own)]


def _top_size(elements: Elements, node: Node, axis: int) -> Expr | None:
    sizes, count = elements.shape(node.source()), node.source(1)
    own = int(native_attributes(node).get("axis", -1)) % len(sizes)
    return elements.of(count, (ZERO,) * (count.rank or 0)) if axis == own else sizes[axis]


def _slice_size(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return the size of an axis that a Slice reverses or cuts."""
    size, cuts = elements.shape(node.source())[axis], fold_cuts(elements.graph, node)
    by_axis = {cut.axis % (node.outputs[0].rank or 1): (place, cut.step) for place, cut in enumerate(cuts)}
    if axis not in by_axis:
        return size if by_axis else None
    place, step = by_axis[axis]
    start, end = (elements.of(node.source(port), (number(place),)) for port in (1, 2))
    if step == -1 and isinstance(end.as_number, int) and end.as_number <= -NO_END:
        is_last = isinstance(start.as_number, int) and (start.as_number == -1 or start.as_number >= NO_END)
        return size if is_last else None
    is_open = isinstance(end.as_number, int) and end.as_number >= NO_END
    if step == 1 and is_open and is_natural(ex.subtract(ex.negative(start), ONE)):
        # In the form of the start in an element.
        return ex.subtract(size, ex.maximum(ex.add(size, start), ZERO))
    if step != 1 or not is_natural(start):
        return None
    if is_open:
        end = size
    elif is_natural(ex.subtract(ex.negative(end), ONE)):
        end = ex.add(size, end)
    return ex.maximum(ZERO, ex.subtract(ex.minimum(end, size), start))


SIZES = {
    "ArgMax": _extreme_size,
    "ArgMin": _extreme_size,
    "NonZero": _non_zero_size,
    "OneHot": _one_hot_size,
    "Slice": _slice_size,
    "TopK": _top_size,
}

#: The same for further results.
FURTHER_SIZES = {"TopK": _top_size}
