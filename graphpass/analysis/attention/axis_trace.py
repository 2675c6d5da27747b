"""Trace a tensor upstream, operator by operator, with a label for the meaning of each of its axes.

A label is a word (``"sequence"``) that a user of the tensor gave, a number for the axes of a cache that are to be
recognised, a tuple for several axes that are merged into one, or ``None``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphpass.ir.axes import AxisEffect, axis_effect, axis_groups
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.types import Dimension
from graphpass.ir.values import is_activation, is_scalar

__all__ = ["BHDL", "BHLD", "PART", "Label", "Labels", "Step", "Via", "before", "copies_merged"]

Label: TypeAlias = str | int | tuple[str | int | None, ...] | None

Labels: TypeAlias = tuple[Label, ...]

#: Axes of keys and values as a product reads them, and of keys that are transposed for it.
BHLD: Labels = ("batch", "heads", "sequence", "head_dim")
BHDL: Labels = ("batch", "heads", "head_dim", "sequence")

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

#: Effects on axes that the trace passes, and how it notes them.
_PASSED: dict[str, ViaKind | None] = {"move": None, "take": None, "cut": "slice", "part": "part", "write": "write"}


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
    inside, via = _through(node, source, labels)
    steps = [Step(source, inside, via)] if inside is not None and _fits(source, inside) else []
    return steps + _overwriting(node, labels)


def _through(node: Node, source: Value, labels: Labels) -> tuple[Labels | None, Via | None]:
    """Return the labels before an operator that moves, drops, copies, cuts or overwrites its first input."""
    if node.op == "Reshape":
        return _regrouped(source, node.outputs[0], labels), None
    if node.op == "Broadcast":
        return _beside_copies(source, node.outputs[0], _aligned(source, labels)), None
    effect = axis_effect(node, len(labels))
    if effect is None or (effect.kind not in _PASSED and node.op not in _SAME):
        return None, None
    kind = _PASSED.get(effect.kind)
    via = Via(kind, node, tuple(labels[axis] for axis in effect.along)) if kind is not None else None
    if effect.kind == "take":
        via = Via("part", node, effect.removed) if effect.removed else None
    return _inside(effect, labels), via


def _inside(effect: AxisEffect, labels: Labels) -> Labels:
    """Return the labels of an operator's first input; an axis of which one entry is taken is a part."""
    taken = PART if effect.kind in {"cut", "take", "iteration"} else None
    found: dict[int, Label] = dict.fromkeys(effect.removed, taken)
    found |= {origin: labels[axis] for axis, origin in enumerate(effect.origins) if origin is not None}
    return tuple(found[axis] for axis in range(len(found)))


def _regrouped(source: Value, result: Value, labels: Labels) -> Labels | None:
    """Return the labels before a Reshape, a tuple for an axis that it takes apart; ``None`` if they are unknown."""
    if source.shape is None or result.shape is None or len(result.shape) != len(labels):
        return None
    groups = axis_groups(source.shape, result.shape)
    if groups is None:
        return copies_merged(len(source.shape), labels)
    inside: list[Label] = []
    for olds, news in groups:
        given = [labels[axis] for axis in news]
        if len(olds) == 1 and news:
            real = [label for axis, label in zip(news, given, strict=True) if result.shape[axis] != 1]
            inside.append(_merged(real if len(news) > 1 else given))
        elif len(news) == 1:
            inside.extend(_taken_apart(source.shape, olds, given[0]))
        elif not news:
            inside.extend([None] * len(olds))
        else:
            return None
    return tuple(inside)


def copies_merged(rank: int, labels: Labels) -> Labels | None:
    """Return the labels before a Reshape that merges the copies of each head, if sizes are unknown."""
    if "heads" not in labels or rank != len(labels) + 1:
        return None
    heads = labels.index("heads")
    return (*labels[: heads + 1], None, *labels[heads + 1 :])


def _merged(labels: list[Label]) -> Label:
    if len(labels) == 1:
        return labels[0]
    flat: list[str | int | None] = []
    for label in labels:
        flat.extend(label if isinstance(label, tuple) else [label])
    return tuple(flat) or None


def _taken_apart(shape: tuple[Dimension, ...], axes: list[int], label: Label) -> list[Label]:
    """Return the labels of axes that a Reshape merges into one with ``label``."""
    if isinstance(label, tuple) and len(label) == len(axes):
        return list(label)
    if label == "rows" and len(axes) == 2:
        return ["batch", "heads"]
    real = [axis for axis in axes if shape[axis] != 1]
    if len(real) == 1:
        return [label if axis == real[0] else None for axis in axes]
    # Copies of heads come after the head that they copy.
    return [label if place == 0 and label == "heads" else None for place in range(len(axes))]


def _around_loop(node: Node, labels: Labels) -> list[Step]:
    """What a loop is given, of what an iteration finds; or what an iteration leaves, of what the loop gives."""
    source, via, effect = node.inputs[0], Via("loop", node), axis_effect(node, len(labels))
    if source is None or effect is None:
        return []
    inside = _inside(effect, labels)
    if node.op == "Sliced":
        kept = labels[effect.along[0]] if effect.along else None
        if isinstance(kept, str):
            # The body knows it as the batch, the heads or the positions.
            via = Via("slice", node, (kept,))
        else:
            inside = tuple(PART if axis in effect.along else label for axis, label in enumerate(inside))
            via = Via("part", node, (PART,))
    return [Step(source, inside, via)] if _fits(source, inside) else []


def _at(labels: Labels, axis: int) -> Label:
    return labels[axis] if -len(labels) <= axis < len(labels) else None


def _fits(source: Value, labels: Labels) -> bool:
    return source.rank is None or source.rank == len(labels)


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
