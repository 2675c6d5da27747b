"""Moves the axes of caches, and Transposes out of the way: down to attention, where they cancel or stay.

Nodes that work on any order of axes (a Concat, the beam Gather, the copies of grouped heads) are told their new axes. A
Transpose that they lead to takes the new order up, and goes where nothing is left of it. Whatever else reads a tensor
whose axes moved reads a Transpose of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from graphpass.ir.axes import axis_effect
from graphpass.ir.values import is_scalar

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Use, Value
    from graphpass.ir.rewriter import Handle, Rewriter

__all__ = ["Order", "inverse", "move_axes"]

Order = tuple[int, ...]
"""New axis ``i`` is old axis ``order[i]``."""

#: Effects on axes that work along axes in any order.
_ALONG = frozenset({"join", "cut", "part", "take"})


def inverse(order: Order) -> Order:
    """What moves the axes back."""
    return tuple(order.index(axis) for axis in range(len(order)))


def move_axes(graph: Graph, rewriter: Rewriter, reads: Mapping[int, Order], writes: Mapping[int, Order]) -> None:
    """Move the axes of tensors that a model carries, and all that depends on them.

    Args:
        graph: The model as it is.
        rewriter: Edits the model.
        reads: New orders of what Parameters and ReadValues give, by node index.
        writes: The same of what Results and Assigns take.
    """
    _Relayout(graph, rewriter).run(reads, writes)


@dataclass(frozen=True, slots=True)
class _Moved:
    """A tensor whose axes are in another order.

    Attributes:
        order: In which.
        copies: The old axis along which heads are copied, where there is one.
    """

    order: Order
    copies: int | None = None


_Key = tuple[int, int]


def _key(value: Value) -> _Key:
    return value.node, value.port


class _Relayout:
    def __init__(self, graph: Graph, rewriter: Rewriter) -> None:
        self._graph = graph
        self._rewriter = rewriter
        self._moved: dict[_Key, _Moved] = {}
        self._replaced: dict[_Key, Handle] = {}
        self._transposed: dict[tuple[_Key, Order], Handle] = {}
        self._rules: dict[str, Callable[[Node], _Moved | None]] = {
            "Unsqueeze": self._unsqueeze,
            "Broadcast": self._broadcast,
            "Reshape": self._reshape,
        }

    def run(self, reads: Mapping[int, Order], writes: Mapping[int, Order]) -> None:
        for node in self._graph.nodes:
            if node.index in reads:
                self._read(node, reads[node.index])
            elif node.index in writes:
                self._rewriter.redirect(node, 0, self._viewed(node.source(), writes[node.index]))
                self._rewriter.transpose_port(node, writes[node.index])
            elif any(value is not None and _key(value) in self._moved for value in node.inputs):
                self._follow(node)

    def _read(self, node: Node, order: Order) -> None:
        if node.inputs:
            self._rewriter.redirect(node, 0, self._initial(node.source(), order))
        self._rewriter.transpose_port(node, order)
        self._moved[node.index, 0] = _Moved(order)

    def _initial(self, value: Value, order: Order) -> Handle:
        """What a variable starts with: a Broadcast of one number to another shape, or a Transpose of it."""
        node = self._graph.producer(value)
        if node.op != "Broadcast" or not is_scalar(node.source()) or len(self._graph.uses(value)) > 1:
            return self._viewed(value, order)
        self._rewriter.redirect(node, 1, self._vector(node.source(1), order))
        return self._rewriter.native(value)

    def _follow(self, node: Node) -> None:
        """Let ``node`` read what moved."""
        if node.op == "ShapeOf":
            self._shape(node)
        elif node.op == "Transpose" and "order" in node.attributes:
            self._transpose(node)
        else:
            moved = self._kept(node)
            if moved is None:
                for port, value in enumerate(node.inputs):
                    if value is not None and _key(value) in self._moved:
                        self._read_in_place(node, port)
                return
            for made in node.outputs:
                self._moved[_key(made)] = moved
                self._rewriter.mark_permuted(made, moved.order)

    def _read_in_place(self, node: Node, port: int) -> None:
        """Let input ``port`` have its old order."""
        value = node.source(port)
        assert value.rank is not None
        self._rewriter.redirect(node, port, self._viewed(value, tuple(range(value.rank))))

    def _viewed(self, value: Value, order: Order) -> Handle:
        """``value`` with its axes in ``order``: through a Transpose, one where it comes out of a Transpose already."""
        if (_key(value), order) in self._transposed:
            return self._transposed[_key(value), order]
        source, wanted = value, order
        node = self._graph.producer(value)
        if node.op == "Transpose" and "order" in node.attributes and _key(value) not in self._moved:
            source, wanted = node.source(), tuple(node.attributes["order"][axis] for axis in order)
        if _key(source) in self._moved:
            back = inverse(self._moved[_key(source)].order)
            wanted = tuple(back[axis] for axis in wanted)
        handle = self._handle(source)
        if wanted != tuple(range(len(wanted))):
            handle = self._rewriter.op(
                "Transpose", handle, order=wanted, name=f"{value.name}/axes_{''.join(map(str, order))}"
            )
        self._transposed[_key(value), order] = handle
        return handle

    def _handle(self, value: Value) -> Handle:
        return self._replaced[_key(value)] if _key(value) in self._replaced else self._rewriter.native(value)

    def _order(self, node: Node) -> _Moved | None:
        """How the first input moved; ``None`` where it did not."""
        value = node.inputs[0]
        return self._moved.get(_key(value)) if value is not None else None

    def _transpose(self, node: Node) -> None:
        moved = self._order(node)
        assert moved is not None
        back = inverse(moved.order)
        order = tuple(back[axis] for axis in node.attributes["order"])
        if order == tuple(range(len(order))):
            self._replaced[node.index, 0] = self._handle(node.source())
            self._rewriter.redirect_uses(node.outputs[0], self._replaced[node.index, 0])
        self._rewriter.set_axes(node, order)

    def _shape(self, node: Node) -> None:
        """Dimensions are looked up at their new places."""
        moved = self._order(node)
        assert moved is not None
        given = self._rewriter.whole_shape(node)
        places = tuple(inverse(moved.order)[axis] for axis in given)
        uses = self._graph.uses(node.outputs[0])
        picked = {use: self._graph.constant(use.node.inputs[1]) for use in uses if _picks(use)}
        for use, axes in picked.items():
            if axes is not None:
                found = numpy.array(places)[axes].tolist()
                self._rewriter.redirect(use.node, 1, self._rewriter.constant(found, "i64", f"{use.node.name}/places"))
        others = [use for use in uses if picked.get(use) is None]
        if others:
            whole = self._rewriter.native(node.outputs[0])
            self._replaced[node.index, 0] = self._rewriter.op(
                "Gather", whole, list(places), axis=0, name=f"{node.name}/in_order"
            )
        for use in others:
            self._rewriter.redirect(use.node, use.port, self._replaced[node.index, 0])

    def _kept(self, node: Node) -> _Moved | None:
        """Let ``node`` work on axes in another order, if it can."""
        if node.op in self._rules:
            return self._rules[node.op](node)
        effect = axis_effect(node, node.outputs[0].rank or 0) if node.outputs else None
        if effect is None or effect.removed:
            return None
        if effect.kind == "elementwise":
            return self._elementwise(node)
        has_axes = node.attributes.keys() & {"axis", "axes"} and not node.attributes.get("batch_dims")
        return self._along(node, effect.along) if effect.kind in _ALONG and has_axes else None

    def _elementwise(self, node: Node) -> _Moved | None:
        moved = self._any_order(node)
        rank = len(moved.order)
        if any(value is not None and not is_scalar(value) and value.rank != rank for value in node.inputs):
            return None
        self._align(node, moved.order)
        return moved

    def _any_order(self, node: Node) -> _Moved:
        """Return how the first input moved that did."""
        return next(
            self._moved[_key(value)] for value in node.inputs if value is not None and _key(value) in self._moved
        )

    def _along(self, node: Node, axes: tuple[int, ...]) -> _Moved | None:
        """Operators that join, cut or choose along axes: all inputs of a Concat move, of others the first."""
        moved = self._any_order(node) if node.op == "Concat" else self._order(node)
        if moved is not None:
            if node.op == "Concat":
                self._align(node, moved.order)
            self._rewriter.set_axes(node, tuple(moved.order.index(axis) for axis in axes))
        return moved

    def _align(self, node: Node, order: Order) -> None:
        """Let all inputs that have axes have them in ``order``."""
        for port, value in enumerate(node.inputs):
            moved = self._moved.get(_key(value)) if value is not None else None
            if value is not None and value.rank == len(order) and (moved is None or moved.order != order):
                self._rewriter.redirect(node, port, self._viewed(value, order))

    def _unsqueeze(self, node: Node) -> _Moved | None:
        """An axis for copies, which stays right behind the heads that are copied."""
        moved, axes = self._order(node), node.attributes.get("axes", ())
        if moved is None or moved.copies is not None or len(axes) != 1 or axes[0] == 0:
            return None
        copies = axes[0]
        order: list[int] = []
        for axis in moved.order:
            order.append(axis + (axis >= copies))
            order += [copies] if axis == copies - 1 else []
        self._rewriter.set_axes(node, (order.index(copies),))
        return _Moved(tuple(order), copies)

    def _broadcast(self, node: Node) -> _Moved | None:
        moved, shape = self._order(node), node.inputs[1]
        if moved is None or len(node.inputs) > 2 or shape is None or shape.shape != (len(moved.order),):
            return None
        self._rewriter.redirect(node, 1, self._vector(shape, moved.order))
        return moved

    def _vector(self, vector: Value, order: Order) -> Handle:
        """The elements of ``vector``, one an axis, in the order of the axes."""
        node = self._graph.producer(vector)
        name = f"{vector.name}/axes_{''.join(map(str, order))}"
        known = self._graph.constant(vector)
        if known is not None:
            return self._rewriter.constant([int(known[axis]) for axis in order], "i64", name)
        parts = [value for value in node.inputs if value is not None]
        if node.op == "Concat" and len(parts) == len(order) and all(part.shape == (1,) for part in parts):
            return self._rewriter.op("Concat", *[self._handle(parts[axis]) for axis in order], axis=0, name=name)
        return self._rewriter.op("Gather", self._handle(vector), list(order), axis=0, name=name)

    def _reshape(self, node: Node) -> _Moved | None:
        """Heads and their copies, which become one axis."""
        moved, result = self._order(node), node.outputs[0]
        if moved is None or moved.copies is None or result.rank != len(moved.order) - 1:
            return None
        heads = moved.copies - 1
        order = tuple(axis - (axis > heads) for axis in moved.order if axis != moved.copies)
        shape = _target(order, result, heads)
        if shape is None:
            return None
        self._rewriter.set_shape(node, shape)
        return _Moved(order)


def _target(order: Order, result: Value, merged: int) -> list[int] | None:
    """What a Reshape shall make: sizes that are known, 0 for what it keeps, -1 for what is left.

    Args:
        order: Of the axes that it makes.
        result: What it made.
        merged: Which axis of ``result`` was two.

    Returns:
        The shape; ``None`` where more than one size is left.
    """
    assert result.shape is not None
    shape: list[int] = []
    for axis in order:
        size = result.shape[axis]
        # Only in front of the axis that was two stand axes where they stood.
        kept = -1 if merged in order[: len(shape) + 1] else 0
        shape.append(size if isinstance(size, int) else kept)
    return shape if shape.count(-1) <= 1 else None


def _picks(use: Use) -> bool:
    return use.node.op == "Gather" and use.port == 0
