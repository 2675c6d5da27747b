"""Sizes that are products, quotients or computed, which linear sizes leave open."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from graphpass.analysis.symbolic.bounds import quotient
from graphpass.analysis.symbolic.elements import Elements
from graphpass.analysis.symbolic.expressions import (
    ONE,
    ZERO,
    Expr,
    add,
    choose,
    equal,
    floor_divide,
    multiply,
    number,
    subtract,
)
from graphpass.ir.graph import Node, Value


def _reshape(elements: Elements, node: Node, axis: int) -> Expr | None:
    source = elements.shape(node.source())
    targets = _all(elements, node.source(1), node.outputs[0].rank or 0)
    if node.attributes.get("special_zero", True):
        targets = [source[place] if size is ZERO else size for place, size in enumerate(targets)]
    if targets[axis].as_number != -1:
        return targets[axis]
    count, others = list(source), [*targets[:axis], *targets[axis + 1 :]]
    exact = quotient(reduce(multiply, count, ONE), reduce(multiply, others, ONE))
    if exact is not None:
        return exact
    for size in tuple(others):
        if size in count:
            count.remove(size)
            others.remove(size)
    # A model that runs divides without a remainder, as where a length was padded to whole chunks.
    return floor_divide(reduce(multiply, count, ONE), reduce(multiply, others, ONE))


def _broadcast(elements: Elements, node: Node, axis: int) -> Expr | None:
    source, count = elements.shape(node.source()), elements.shape(node.source(1))[0].as_number
    rank = node.outputs[0].rank or 0
    if len(node.inputs) != 2 or not isinstance(count, int):
        return None
    place, own = axis - rank + count, axis - rank + len(source)
    target = elements.of(node.source(1), (number(place),)) if place >= 0 else ONE
    size = source[own] if own >= 0 else ONE
    # Other sizes than 1 are equal if the model runs.
    return target if size is ONE else size if target in (ONE, size) else choose(equal(size, ONE), target, size)


def _pad(elements: Elements, node: Node, axis: int) -> Expr | None:
    size, rank = elements.shape(node.source())[axis], node.outputs[0].rank or 0
    counts = elements.shape(node.source(1))[0]
    if counts.as_number == rank:
        before, after = (elements.of(node.source(port), (number(axis),)) for port in (1, 2))
    else:
        before, after = (elements.of(node.source(1), (number(axis + start),)) for start in (0, rank))
    return add(size, before, after)


def _range(elements: Elements, node: Node, _: int) -> Expr | None:
    start, stop, step = (elements.of(node.source(port), ()) for port in range(3))
    return subtract(stop, start) if step is ONE else None


def _tile(elements: Elements, node: Node, axis: int) -> Expr:
    return multiply(elements.shape(node.source())[axis], elements.of(node.source(1), (number(axis),)))


def _all(elements: Elements, vector: Value, count: int) -> list[Expr]:
    return [elements.of(vector, (number(place),)) for place in range(count)]


#: The size of an axis of the result, by operator.
RULES: dict[str, Callable[[Elements, Node, int], Expr | None]] = {
    "Broadcast": _broadcast,
    "ConstantOfShape": lambda elements, node, axis: elements.of(node.source(), (number(axis),)),
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Tile": _tile,
}
