"""Follows a tensor backwards, operator by operator, and which of its axes means what on the way.

A label says what an axis means: a word (``"sequence"``) where a reader gave it, a number where the axes of a cache are
to be recognised, a tuple where several axes are merged into one, ``None`` where nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from graphpass.analysis.attention.regroup import Label, Labels, regroup
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import SLICES
from graphpass.ir.values import is_activation, is_scalar

__all__ = ["PART", "Step", "Via", "before"]

#: The label of an axis of which one entry was taken.
PART = "part"

#: Operators that pass the elements of their first input on in place, but for their precision.
_SAME = frozenset(
    {"Convert", "Identity", "Dropout", "Round", "Clamp", "Clip", "QuantizeLinear", "FakeQuantize", "Tile"}
)

#: Operators on each element by itself whose operands may be broadcast.
_ARITHMETIC = frozenset({"Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "Select"})

_INTEGERS = frozenset({"i8", "u8", "i4", "u4"})

ViaKind = Literal[
    "join", "write", "slice", "part", "weights", "dequantized", "scale", "zero_point", "arithmetic", "loop"
]


@dataclass(frozen=True, slots=True)
class Via:
    """Something worth saying that lies on the way.

    Attributes:
        kind: ``join`` is a Concat, ``write`` one of the scatter operators, ``slice`` a cut, ``part`` a Split, a Gather
            of one entry or what an iteration of a loop takes, ``weights`` a product with weights, ``dequantized`` that
            integers become numbers, ``scale`` and ``zero_point`` that the value is one, ``arithmetic`` what is joined
            by it with another tensor, ``loop`` that the value enters a loop or leaves it.
        node: The operator.
        labels: What the axes mean along which it works; for ``write`` several where it could be any of them.
    """

    kind: ViaKind
    node: Node
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Step:
    """An input of an operator, what its axes mean, and what the operator does."""

    value: Value
    labels: Labels
    via: Via | None = None


def before(graph: Graph, value: Value, labels: Labels) -> list[Step]:
    """The inputs that hold the content of ``value``, and what their axes mean; none where that cannot be told."""
    node = graph.producer(value)
    if node.op in _ARITHMETIC:
        return _operands(graph, node, labels)
    if node.op == "Concat":
        join = Via("join", node, (_at(labels, node.attributes["axis"]),))
        return [Step(source, labels, join) for source in node.inputs if source is not None]
    if node.op == "If":
        return [Step(source, labels) for source in node.inputs[1:] if source is not None and _fits(source, labels)]
    if node.op in {"Carried", "Final", "Sliced", "Stacked"}:
        return _around_loop(node, labels)
    if node.op == "DequantizeLinear":
        return _dequantized(node, labels)
    source = node.inputs[0] if node.inputs else None
    if source is None:
        return []
    if node.op in {"MatMul", "MatMulNBits"}:
        return _product(graph, node, source, labels)
    inside, via = _layout(node, source, labels)
    steps = [Step(source, inside, via)] if inside is not None and _fits(source, inside) else []
    return steps + _overwriting(node, labels)


def _layout(node: Node, source: Value, labels: Labels) -> tuple[Labels | None, Via | None]:
    """Operators that move, drop, copy or overwrite: what the axes of their first input mean."""
    given = node.attributes
    if node.op in _SAME:
        return labels, None
    if node.op == "Broadcast":
        return _beside_copies(source, node.outputs[0], _aligned(source, labels)), None
    if node.op in SLICES:
        return labels, Via("slice", node, tuple(_at(labels, axis) for axis in given.get("axes", ())))
    if node.op in {"Split", "VariadicSplit"} and "axis" in given:
        return labels, Via("part", node, (_at(labels, given["axis"]),))
    if node.op == "Gather" and "axis" in given:
        return _gathered(node, labels)
    if node.op == "Transpose" and "order" in given and len(given["order"]) == len(labels):
        inside: list[Label] = [None] * len(labels)
        for position, axis in enumerate(given["order"]):
            inside[axis] = labels[position]
        return tuple(inside), None
    if node.op == "Unsqueeze" and "axes" in given:
        return tuple(label for axis, label in enumerate(labels) if axis not in given["axes"]), None
    if node.op == "Squeeze" and "axes" in given:
        return _inserted(labels, given["axes"], None), None
    if node.op == "Reshape":
        return regroup(source, node.outputs[0], labels), None
    if node.op in {"ScatterElementsUpdate", "ScatterUpdate", "TensorScatter"} and "axis" in given:
        return labels, Via("write", node, (_at(labels, given["axis"]),))
    if node.op == "ScatterNDUpdate":
        return labels, Via("write", node, _written(node, labels))
    return None, None


def _around_loop(node: Node, labels: Labels) -> list[Step]:
    """What a loop is given, of what an iteration finds; or what an iteration leaves, of what the loop gives."""
    source, via = node.inputs[0], Via("loop", node)
    inside: Labels | None = labels
    if "axis" in node.attributes:
        axis, keeps_axis = node.attributes["axis"], node.attributes["keeps_axis"]
        if node.op == "Stacked":
            inside = labels if keeps_axis else (*labels[:axis], *labels[axis + 1 :])
        elif keeps_axis and isinstance(_at(labels, axis), str):
            # The body knows it as the batch, the heads or the positions.
            via = Via("slice", node, (labels[axis],))
        else:
            inside = (*labels[:axis], PART, *labels[axis + 1 :]) if keeps_axis else _inserted(labels, [axis], PART)
            via = Via("part", node, (PART,))
    return [Step(source, inside, via)] if source is not None and inside is not None and _fits(source, inside) else []


def _at(labels: Labels, axis: int) -> Label:
    return labels[axis] if -len(labels) <= axis < len(labels) else None


def _fits(source: Value, labels: Labels) -> bool:
    return source.rank is None or source.rank == len(labels)


def _inserted(labels: Labels, axes: Iterable[int], label: Label) -> Labels | None:
    inside = list(labels)
    for axis in sorted(axes):
        if not 0 <= axis <= len(inside):
            return None
        inside.insert(axis, label)
    return tuple(inside)


def _gathered(node: Node, labels: Labels) -> tuple[Labels | None, Via | None]:
    indices = node.inputs[1]
    if indices is None or indices.rank not in {0, 1}:
        return None, None
    axis = node.attributes["axis"]
    if indices.rank == 1:
        return labels, None
    return _inserted(labels, [axis], PART), Via("part", node, (axis,))


def _written(node: Node, labels: Labels) -> Labels:
    """What the axes mean along which a ScatterND writes: those that it indexes and that its updates do not fill."""
    data, indices = node.inputs[0], node.inputs[1]
    depth = indices.shape[-1] if indices is not None and indices.shape else None
    if data is None or indices is None or indices.shape is None or not isinstance(depth, int):
        return ()
    spread = indices.shape[:-1]
    if data.shape is None or len(spread) != depth:
        return labels[:depth]
    # One dimension of the indices for each axis: those of equal size run over the whole axis.
    partial = [axis for axis in range(depth) if spread[axis] is None or spread[axis] != data.shape[axis]]
    return tuple(labels[axis] for axis in (partial or range(depth)))


def _overwriting(node: Node, labels: Labels) -> list[Step]:
    """What a ScatterND writes: part of the cache itself, perhaps, that was taken out and updated."""
    if node.op != "ScatterNDUpdate" or len(node.inputs) < 3:
        return []
    indices, updates = node.inputs[1:3]
    depth = indices.shape[-1] if indices is not None and indices.shape else None
    if indices is None or indices.rank is None or updates is None or not isinstance(depth, int):
        return []
    inside: Labels = (*((PART,) * (indices.rank - 1)), *labels[depth:])
    return [Step(updates, inside)] if _fits(updates, inside) else []


def _aligned(source: Value, labels: Labels) -> Labels | None:
    """Labels of an operand that may be broadcast."""
    if source.shape is None:
        return labels
    return labels[len(labels) - len(source.shape) :] if len(source.shape) <= len(labels) else None


def _beside_copies(source: Value, result: Value, labels: Labels | None) -> Labels | None:
    """``labels`` of ``source``, where ``result`` has copies of its only head: merged with it, they look like heads."""
    before, after = source.shape, result.shape
    if labels is None or before is None or after is None or len(before) != len(after) or "heads" not in labels:
        return labels
    copies = labels.index("heads")
    head = copies - 1
    if copies == 0 or labels[head] is not None or (before[head], before[copies], after[head]) != (1, 1, 1):
        return labels
    return (*labels[:head], "heads", None, *labels[copies + 1 :])


def _operands(graph: Graph, node: Node, labels: Labels) -> list[Step]:
    steps = []
    for port, source in enumerate(node.inputs):
        # The condition of a Select is no content, and a vector or a number is no cache.
        if source is None or (node.op == "Select" and port == 0) or (source.rank is not None and source.rank < 2):
            continue
        inside = _aligned(source, labels)
        if inside is not None:
            steps.append(Step(source, inside, _companion(graph, node, port)))
    return steps


def _companion(graph: Graph, node: Node, port: int) -> Via | None:
    """What input ``port`` of ``node`` is to the other: a scale or zero point of quantized numbers, or the numbers."""
    own, other = node.inputs[port], node.inputs[1 - port] if len(node.inputs) == 2 else None
    if own is None or (other is not None and (is_scalar(other) or not is_activation(graph, other))):
        return None
    if other is None or node.op not in {"Multiply", "Divide", "Subtract", "Add"}:
        return Via("arithmetic", node)
    integers, others = _holds_integers(graph, own), _holds_integers(graph, other)
    if integers and others:
        return Via("zero_point" if node.op == "Subtract" and port == 1 else "dequantized", node)
    if others:
        return Via("scale" if node.op in {"Multiply", "Divide"} else "zero_point", node)
    return Via("dequantized" if integers else "arithmetic", node)


def _holds_integers(graph: Graph, value: Value) -> bool:
    """Whether ``value`` is a tensor of small integers, converted and perhaps shifted, but not scaled."""
    current: Value | None = value
    while current is not None:
        if current.element_type in _INTEGERS:
            return current.rank is None or current.rank >= 2
        node = graph.producer(current)
        if node.op not in {"Convert", "Identity", "Subtract"}:
            return False
        current = node.inputs[0]
    return False


def _dequantized(node: Node, labels: Labels) -> list[Step]:
    steps = []
    kinds: tuple[ViaKind, ...] = ("dequantized", "scale", "zero_point")
    for kind, source in zip(kinds, node.inputs, strict=False):
        if source is None or source.rank != len(labels):
            continue
        inside = _aligned(source, labels)
        if inside is not None:
            steps.append(Step(source, inside, Via(kind, node)))
    return steps


def _product(graph: Graph, node: Node, source: Value, labels: Labels) -> list[Step]:
    """A product with weights from the right makes the last axis anew and leaves the others."""
    if node.op == "MatMul" and (is_activation(graph, node.inputs[1]) or node.attributes["transpose_a"]):
        return []
    inside = _aligned(source, labels)
    if inside is None or len(inside) < 2:
        return []
    return [Step(source, inside, Via("weights", node))]
