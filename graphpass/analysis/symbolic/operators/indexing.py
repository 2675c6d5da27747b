"""Rules of Gather, scatter and Pad operators."""

from __future__ import annotations

from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.elements import Element, Index, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, number
from graphpass.analysis.symbolic.places import flat_place, index_of, solved
from graphpass.analysis.symbolic.step import is_input
from graphpass.ir.graph import Value
from graphpass.ir.operators import CASTS, SLICES


def _positive(place: Expr, size: Expr) -> Expr:
    """Return the index from 0 for an index that may be negative."""
    # Indices that are inputs, such as token ids and positions, are not negative.
    if is_natural(place) or is_input(place):
        return place
    if is_natural(ex.subtract(ex.negative(place), ONE)):
        return ex.add(place, size)
    return ex.choose(ex.at_most(ZERO, place), place, ex.add(place, size))


def written_place(place: Expr, size: Expr) -> Expr:
    """Return the index from 0 for a scatter's index.

    Args:
        place: The index; negative ones count from the end.
        size: Size of the axis.
    """
    if place.op == "read" and not is_natural(place):
        return ex.choose(ex.at_most(ZERO, place), place, ex.add(place, size))
    return _positive(place, size)


def _gather(element: Element) -> Steps:
    node, sizes = element.node, element.shape(0)
    axis, batch = node.attributes["axis"] % len(sizes), node.attributes.get("batch_dims", 0)
    count = len(element.shape(1)) - batch
    place = yield node.source(1), (*element.index[:batch], *element.index[axis : axis + count])
    rest = element.index[axis + count :]
    return (yield node.source(), (*element.index[:axis], _positive(place, sizes[axis]), *rest))


def _gather_elements(element: Element) -> Steps:
    axis = element.node.attributes.get("axis", 0) % len(element.index)
    place = yield element.node.source(1), element.index
    place = _positive(place, element.shape(0)[axis])
    return (yield element.node.source(), element.index_with(axis, place))


def _gather_nd(element: Element) -> Steps:
    if element.node.attributes.get("batch_dims"):
        raise UnknownError("dialects define GatherND with batch_dims differently")
    sizes, indices = element.shape(0), element.shape(1)
    depth = indices[-1].as_number
    if not isinstance(depth, int):
        raise UnknownError("the number of its indices is not known")
    spread = element.index[: len(indices) - 1]
    places = []
    for axis in range(depth):
        place = yield element.node.source(1), (*spread, number(axis))
        places.append(_positive(place, sizes[axis]))
    return (yield element.node.source(), (*places, *element.index[len(indices) - 1 :]))


def _pad(element: Element) -> Steps:
    if "pad_mode" in element.node.attributes:
        raise UnknownError("its pad_mode is not constant")
    sizes = element.shape(0)
    pads = yield from element.integers(1)
    before = pads[: len(sizes)]
    # ONNX has one input for both ends, and one for axes after the value.
    port = 2 if hasattr(element.node.native, "domain") else 3
    if port == 2 and element.node.input(3) is not None:
        raise UnknownError("it has an input for axes")
    inside = ex.TRUE
    places = []
    for place, size, start in zip(element.index, sizes, before, strict=True):
        own = ex.subtract(place, start)
        inside = ex.conjunction(inside, ex.at_most(ZERO, own), ex.less(own, size))
        places.append(own)
    expr = yield element.node.source(), tuple(places)
    if inside is ex.TRUE:
        return expr
    value = ex.FALSE if expr.sort == "bool" else ZERO
    if element.node.input(port) is not None:
        value = yield element.node.source(port), (ZERO,) * len(element.shape(port))
    return ex.choose(inside, expr, value)


def _scatter_nd(element: Element) -> Steps:
    """Return an element of a ScatterNDUpdate whose indices are ranges, or parts of ranges.

    Raises:
        UnknownError: The operator combines updates, or the depth of its indices is unknown.
    """
    node, rank = element.node, len(element.index)
    if "reduction" in node.attributes:
        raise UnknownError("it has attribute reduction")
    if ZERO in element.shape(2):
        # The updates are empty.
        return (yield node.source(), element.index)
    indices = element.shape(1)
    depth = indices[-1].as_number
    if not isinstance(depth, int):
        raise UnknownError("the number of its indices is not known")
    part = _part_of_range(element) if depth == 1 and rank == 1 else None
    if part is not None:
        source, radix = part
        spread = [
            ex.index(f"write {axis} {node.index}", size) for axis, size in enumerate(element.elements.shape(source))
        ]
        place = yield source, tuple(spread)
        solution, inside = solved(spread, index_of(place, radix), index_of(element.index[0], radix))
        where, sizes = tuple(solution[index] for index in spread), tuple(index.args[1] for index in spread)
        update = element.elements.graph.producer(node.source(2))
        # Outside of the written slice the index may exceed its sizes, and a flat index cannot be converted back.
        is_flattened = update.op == "Reshape" and element.elements.shape(update.source()) == sizes
        written = yield (update.source(), where) if is_flattened else (node.source(2), (flat_place(where, sizes),))
    else:
        spread = [ex.index(f"write {axis} {node.index}", size) for axis, size in enumerate(indices[:-1])]
        places = []
        for axis in range(depth):
            places.append(written_place((yield node.source(1), (*spread, number(axis))), element.shape(0)[axis]))
        solution, inside = solved(spread, tuple(places), element.index[:depth])
        written = yield node.source(2), (*(solution[index] for index in spread), *element.index[depth:rank])
    if inside is ex.TRUE:
        return written
    return ex.choose(inside, written, (yield node.source(), element.index))


def _part_of_range(element: Element) -> tuple[Value, Index] | None:
    """Return the slice of a reshaped Range that the indices flatten, and the Range's shape.

    OpenVINO's frontend converts ``x[:, :, :, :n] = y`` to this form (SliceAssign).
    """
    graph = element.elements.graph
    flattened = graph.producer(graph.look_through(element.node.source(1), CASTS))
    if flattened.op != "Reshape":
        return None
    part = flattened.source()
    whole = graph.producer(graph.look_through(part, SLICES))
    is_range = whole.op == "Reshape" and graph.producer(whole.source()).op == "Range"
    return (part, element.elements.shape(whole.outputs[0])) if is_range else None


def _scatter_elements(element: Element) -> Steps:
    """Return an element of a scatter of one slice, as by PyTorch's select_scatter.

    Raises:
        UnknownError: The operator combines updates, or does not write one whole slice.
    """
    node, own, sizes, indices = element.node, element.index, element.shape(0), element.shape(1)
    if "reduction" in node.attributes:
        raise UnknownError("it has attribute reduction")
    axis = node.attributes["axis"] % len(own)
    others = [place for place in range(len(own)) if place != axis]
    if indices[axis] is not ONE or any(indices[place] is not sizes[place] for place in others):
        raise UnknownError("it does not write one whole slice")
    first = element.index_with(axis, ZERO)
    place = written_place((yield node.source(1), first), sizes[axis])
    inside = ex.equal(own[axis], place)
    update = yield node.source(2), first
    return update if inside is ex.TRUE else ex.choose(inside, update, (yield node.source(), own))


def _scatter_update(element: Element) -> Steps:
    """Return an element of a scatter of slices along one axis.

    Raises:
        UnknownError: The axis is not constant, or the indices are not a vector.
    """
    node = element.node
    axes = (yield from element.integers(3)) if node.input(3) is not None else ()
    place = axes[0].as_number if axes else node.attributes.get("axis", 0)
    indices = element.shape(1)
    if not isinstance(place, int) or len(indices) != 1:
        raise UnknownError("its axis is not constant, or its indices are not a vector")
    place %= len(element.index)
    spread = [ex.index(f"write {node.index}", indices[0])]
    written = written_place((yield node.source(1), tuple(spread)), element.shape(0)[place])
    solution, inside = solved(spread, (written,), (element.index[place],))
    update = yield node.source(2), (*element.index[:place], solution[spread[0]], *element.index[place + 1 :])
    return update if inside is ex.TRUE else ex.choose(inside, update, (yield node.source(), element.index))


RULES: dict[str, Rule] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Pad": _pad,
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": _scatter_nd,
    "ScatterUpdate": _scatter_update,
}
