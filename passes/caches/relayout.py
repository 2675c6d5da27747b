"""Permute caches, and move Transposes downstream to attention.

Operators that support any order of axes (a Concat, the beam Gather, the expansion of grouped heads) get new axes. A
Transpose downstream of them is composed with the permutation, and removed if the result is the identity. Other users
of a permuted tensor read a Transpose of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy

from graphpass.ir.axes import axis_effect
from graphpass.ir.graph import Node, Use, Value
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import is_scalar
from graphpass.ir.writer import Handle

Order = tuple[int, ...]
"""New axis ``i`` is old axis ``order[i]``."""

#: Effects on axes of operators along one axis, which support any order.
_ALONG = frozenset({"join", "cut", "part", "take"})


def inverse(order: Order) -> Order:
    """Return the inverse permutation of ``order``."""
    return tuple(order.index(axis) for axis in range(len(order)))


def move_axes(rewriter: Rewriter, reads: Mapping[int, Order], writes: Mapping[int, Order]) -> None:
    """Permute the axes of caches, and of values downstream.

    Args:
        rewriter: Rewriter of the model.
        reads: New orders of the outputs of Parameters and ReadValues, by node index.
        writes: New orders of the inputs of Results and Assigns, by node index.
    """
    _Relayout(rewriter).run(reads, writes)


def move_picks(rewriter: Rewriter, shape: Node, indices: Sequence[int]) -> list[Use]:
    """Replace constant indices of Gathers from a shape by those in ``indices``.

    Args:
        rewriter: Rewriter of the model.
        shape: The ShapeOf.
        indices: New index of each dimension; -1 if there is none.

    Returns:
        Uses that were not changed: other operators, and Gathers of a dimension with index -1.
    """
    others = []
    for use in rewriter.graph.uses(shape.outputs[0]):
        picked = rewriter.graph.constant(use.node.inputs[1]) if use.node.op == "Gather" and use.port == 0 else None
        picks = None if picked is None else numpy.array(indices)[picked]
        if picks is None or (picks == -1).any():
            others.append(use)
        else:
            constant = rewriter.constant(picks.tolist(), "i64", f"{use.node.name}/places")
            rewriter.redirect(use.node, 1, constant)
    return others


@dataclass(frozen=True, slots=True)
class _Moved:
    """A tensor with permuted axes.

    Attributes:
        order: The order.
        copies: The old axis along which heads are expanded, if any.
    """

    order: Order
    copies: int | None = None


class _Relayout:
    def __init__(self, rewriter: Rewriter) -> None:
        self._graph = rewriter.graph
        self._rewriter = rewriter
        self._moved: dict[Value, _Moved] = {}
        self._replaced: dict[Value, Handle] = {}
        self._transposed: dict[tuple[Value, Order], Handle] = {}
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
            elif any(value in self._moved for value in node.inputs):
                self._follow(node)

    def _read(self, node: Node, order: Order) -> None:
        if node.inputs:
            self._rewriter.redirect(node, 0, self._initial(node.source(), order))
        self._rewriter.transpose_port(node, order)
        self._moved[node.outputs[0]] = _Moved(order)

    def _initial(self, value: Value, order: Order) -> Handle:
        """Return the permuted initial value; a Broadcast of a scalar gets a permuted shape."""
        node = self._graph.producer(value)
        if node.op != "Broadcast" or not is_scalar(node.source()) or len(self._graph.uses(value)) > 1:
            return self._viewed(value, order)
        self._rewriter.redirect(node, 1, self._vector(node.source(1), order))
        return self._rewriter.native(value)

    def _follow(self, node: Node) -> None:
        if node.op == "ShapeOf":
            self._shape(node)
        elif node.op == "Transpose" and "order" in node.attributes:
            self._transpose(node)
        else:
            moved = self._kept(node)
            if moved is None:
                for port, value in enumerate(node.inputs):
                    if value in self._moved:
                        self._read_in_place(node, port)
                return
            for made in node.outputs:
                self._moved[made] = moved
                self._rewriter.mark_permuted(made, moved.order)

    def _read_in_place(self, node: Node, port: int) -> None:
        value = node.source(port)
        assert value.rank is not None
        self._rewriter.redirect(node, port, self._viewed(value, tuple(range(value.rank))))

    def _viewed(self, value: Value, order: Order) -> Handle:
        """Return ``value`` permuted; a Transpose that computes it is composed with the permutation."""
        if (value, order) in self._transposed:
            return self._transposed[value, order]
        source, wanted = value, order
        node = self._graph.producer(value)
        if node.op == "Transpose" and "order" in node.attributes and value not in self._moved:
            source, wanted = node.source(), tuple(node.attributes["order"][axis] for axis in order)
        if source in self._moved:
            back = inverse(self._moved[source].order)
            wanted = tuple(back[axis] for axis in wanted)
        handle = self._latest(source)
        if wanted != tuple(range(len(wanted))):
            handle = self._rewriter.op(
                "Transpose", handle, order=wanted, name=f"{value.name}/axes_{''.join(map(str, order))}"
            )
        self._transposed[value, order] = handle
        return handle

    def _latest(self, value: Value) -> Handle:
        return self._replaced[value] if value in self._replaced else self._rewriter.native(value)

    def _order(self, node: Node) -> _Moved | None:
        return self._moved.get(node.inputs[0]) if node.inputs[0] is not None else None

    def _transpose(self, node: Node) -> None:
        moved = self._order(node)
        assert moved is not None
        back = inverse(moved.order)
        order = tuple(back[axis] for axis in node.attributes["order"])
        if order == tuple(range(len(order))):
            self._replaced[node.outputs[0]] = self._latest(node.source())
            self._rewriter.redirect_uses(node.outputs[0], self._replaced[node.outputs[0]])
        self._rewriter.set_axes(node, order)

    def _shape(self, node: Node) -> None:
        moved = self._order(node)
        assert moved is not None
        shape = self._rewriter.whole_shape(node)
        indices = tuple(inverse(moved.order)[axis] for axis in shape)
        others = move_picks(self._rewriter, node, indices)
        if others:
            self._replaced[node.outputs[0]] = self._rewriter.op(
                "Gather", node.outputs[0], list(indices), axis=0, name=f"{node.name}/in_order"
            )
        for use in others:
            self._rewriter.redirect(use.node, use.port, self._replaced[node.outputs[0]])

    def _kept(self, node: Node) -> _Moved | None:
        """Adapt ``node`` to permuted inputs.

        Returns:
            The order of its outputs; ``None`` if it does not support permuted inputs.
        """
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
        return next(self._moved[value] for value in node.inputs if value is not None and value in self._moved)

    def _along(self, node: Node, axes: tuple[int, ...]) -> _Moved | None:
        """Adapt the axes of an operator: all inputs of a Concat, otherwise the first.

        Returns:
            The order of its output; ``None`` if no order fits.
        """
        moved = self._any_order(node) if node.op == "Concat" else self._order(node)
        if moved is not None:
            if node.op == "Concat":
                self._align(node, moved.order)
            self._rewriter.set_axes(node, tuple(moved.order.index(axis) for axis in axes))
        return moved

    def _align(self, node: Node, order: Order) -> None:
        for port, value in enumerate(node.inputs):
            moved = self._moved.get(value) if value is not None else None
            if value is not None and value.rank == len(order) and (moved is None or moved.order != order):
                self._rewriter.redirect(node, port, self._viewed(value, order))

    def _unsqueeze(self, node: Node) -> _Moved | None:
        """Insert the axis of copies directly after the axis of heads, in the permuted order.

        Returns:
            The order of its output; ``None`` if no order fits.
        """
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
        """Return a permuted ``vector`` with one element per axis."""
        node = self._graph.producer(vector)
        name = f"{vector.name}/axes_{''.join(map(str, order))}"
        known = self._graph.constant(vector)
        if known is not None:
            return self._rewriter.constant([int(known[axis]) for axis in order], "i64", name)
        parts = [value for value in node.inputs if value is not None]
        if node.op == "Concat" and len(parts) == len(order) and all(part.shape == (1,) for part in parts):
            return self._rewriter.op("Concat", *[self._latest(parts[axis]) for axis in order], axis=0, name=name)
        return self._rewriter.op("Gather", self._latest(vector), list(order), axis=0, name=name)

    def _reshape(self, node: Node) -> _Moved | None:
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
    """Return a Reshape's new shape, with 0 for unchanged and -1 for unknown dimensions.

    The result is ``None`` if more than one dimension would be -1. ``merged`` is the axis of ``result`` that merges two.
    """
    assert result.shape is not None
    shape: list[int] = []
    for axis in order:
        size = result.shape[axis]
        # A 0 copies the input's dimension of the same index: indices are unchanged only before the merged axis.
        kept = -1 if merged in order[: len(shape) + 1] else 0
        shape.append(size if isinstance(size, int) else kept)
    return shape if shape.count(-1) <= 1 else None
