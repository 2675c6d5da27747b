"""Fold constants; `Graph.constant` reads literals only.

`fold` computes layout operators and arithmetic on constants and known dimensions, in each value's element type. Each
value of a graph is folded once, and tensors of more than 4096 elements are neither read nor computed. A Broadcast is a
view. Unknown dimensions are masked: operators may move or drop them, but not compute with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.cuts import Cut, cuts
from graphpass.ir.operators import COPIES, RESHAPES
from graphpass.ir.values import is_value_preserving

if TYPE_CHECKING:
    import numpy

    from graphpass.ir.graph import Graph, Node, Value


def fold(graph: Graph, value: Value | None) -> numpy.ndarray | None:
    """Compute ``value`` from constants and known dimensions only.

    Args:
        graph: Graph of ``value``, which keeps folded values.
        value: The tensor; ``None`` for a missing input, which is not folded.

    Returns:
        The tensor in its shape and type, read-only and possibly a view; bf16 as f32. ``None`` if it depends on other
        values, or on a missing file.
    """
    import numpy

    array = _folded(graph, value) if value is not None else None
    if array is None or numpy.ma.is_masked(array):
        return None
    plain: numpy.ndarray = numpy.ma.getdata(array)
    return plain


def fold_scalar(graph: Graph, value: Value | None) -> float | None:
    """Return the only element of a tensor; see `fold`.

    Args:
        graph: As `fold`.
        value: As `fold`, of any rank.

    Returns:
        The element; ``None`` if the tensor is not folded or has another number of elements.
    """
    array = fold(graph, value)
    return float(array.item()) if array is not None and array.size == 1 else None


def fold_elements(graph: Graph, value: Value | None) -> numpy.ndarray | None:
    """Return the constant whose elements a tensor copies or reshapes; see `fold`.

    Args:
        graph: As `fold`.
        value: As `fold`; its shape may differ from that of the constant.
    """
    return None if value is None else fold(graph, graph.look_through(value, copies_elements))


def is_zero(graph: Graph, value: Value) -> bool:
    """Return whether all elements of a tensor are 0, also for an empty tensor.

    Args:
        graph: Graph of ``value``.
        value: The tensor; only folded tensors, ConstantOfShape, and Pads of these with 0 are recognized.
    """
    node = graph.producer(graph.look_through(value, copies_elements))
    while node.op == "Pad" and (node.input(3) is None or fold_scalar(graph, node.input(3)) == 0):
        value = node.source()
        node = graph.producer(graph.look_through(value, copies_elements))
    if node.op == "ConstantOfShape":
        return bool(node.attributes["value"] == 0)
    constant = fold_elements(graph, value)
    return constant is not None and not constant.any()


def copies_elements(node: Node) -> bool:
    """Return whether ``node`` copies or moves elements unchanged, also to unknown shapes."""
    return is_value_preserving(node) or node.op in COPIES | RESHAPES


def is_bounded(graph: Graph, value: Value, least: float) -> bool:
    """Return whether a tensor is a constant, or has a constant lower bound.

    Args:
        graph: Graph of ``value``.
        value: The tensor; bounds are read from a Clip or Maximum.
        least: Smallest accepted bound.
    """
    source = graph.producer(value)
    bounds = source.inputs[1:2] if source.op == "Clip" else source.inputs if source.op == "Maximum" else ()
    numbers = [fold_scalar(graph, bound) for bound in bounds]
    return source.op == "Constant" or any(number is not None and number >= least for number in numbers)


def fold_cuts(graph: Graph, node: Node) -> tuple[Cut, ...]:
    """Return the ranges that a slice keeps; empty if unknown.

    Args:
        graph: Graph of ``node``.
        node: Any operator; only a Slice or StridedSlice has ranges.
    """
    return cuts(node, lambda value: fold(graph, value))


def starts_at_first(graph: Graph, node: Node) -> bool:
    """Return whether a slice starts at index 0 with step 1 along each axis.

    Args:
        graph: Graph of ``node``.
        node: The slice, whose bounds must be constant; other operators do not count as slices.
    """
    cuts = fold_cuts(graph, node)
    return bool(cuts) and all(cut.starts_at_first for cut in cuts)


#: Maximum number of elements of a tensor that is read or computed; scales, shapes and indices are small.
LIMIT = 4096


def _folded(graph: Graph, value: Value) -> numpy.ndarray | None:
    """Return the folded ``value``, unknown elements masked; ``None`` if it cannot be folded."""
    folds = graph.folds
    pending = [value]
    while pending:
        current = pending[-1]
        node = graph.producer(current)
        sources = _sources(graph, node)
        if current in folds:
            pending.pop()
        elif sources is None or any(source in folds and folds[source] is None for source in sources):
            folds[current] = None
        elif missing := [source for source in sources if source not in folds]:
            pending.append(missing[0])
        else:
            folds[current] = _computed(graph, node, current)
    array: numpy.ndarray | None = folds[value]
    return array


def _sources(graph: Graph, node: Node) -> list[Value] | None:
    """Return the inputs to fold; ``None`` if ``node`` is not folded.

    Constants are last: another input often shows first that folding fails.
    """
    from graphpass.analysis.symbolic.arrays import is_known

    if node.op in {"Constant", "ShapeOf"}:
        return []
    if not is_known(node) or not node.inputs or node.inputs[0] is None:
        return None
    return sorted(node.sources, key=lambda value: graph.producer(value).op == "Constant")


def _computed(graph: Graph, node: Node, value: Value) -> numpy.ndarray | None:
    from graphpass.analysis.symbolic.arrays import computed
    from graphpass.analysis.symbolic.rounding import DTYPES

    dtype = DTYPES.get(value.element_type)
    if dtype is None:
        return None
    if node.op == "ShapeOf":
        return _shape(node, dtype)
    if node.op == "Constant":
        try:
            constant = graph.constant(value, LIMIT)
        except FileNotFoundError:  # a graph may be analyzed without its weights
            return None
        return None if constant is None else constant.astype(dtype)
    operands = {source: graph.folds[source] for source in node.sources}
    return computed(graph, node, value.port, operands, LIMIT)


def _shape(node: Node, dtype: str) -> numpy.ndarray | None:
    import numpy

    shape = node.source().shape
    if shape is None:
        return None
    sizes = shape[slice(node.attributes.get("start"), node.attributes.get("end"))]
    known = [isinstance(size, int) for size in sizes]
    numbers = [size if isinstance(size, int) else 0 for size in sizes]
    array: numpy.ndarray = numpy.array(numbers, dtype)
    return array if all(known) else numpy.ma.array(array, mask=[not own for own in known])
