"""Trace a tensor upstream with a label for the meaning of each of its axes.

A label is the name of a logical axis (``"sequence"``), the index of an axis of a cache, a tuple of these for merged
axes, or ``None`` for an axis without meaning, such as copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphpass.analysis.attention.assigned_slices import assigned_slice
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.axes import AxisEffect, axis_effect
from graphpass.ir.axis_groups import axis_groups
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import (
    ARITHMETIC,
    CASTS,
    COMPRESSED_PRODUCTS,
    EXTREMA,
    LOOP_ENTRIES,
    LOOP_EXITS,
    MATRIX_PRODUCTS,
)
from graphpass.ir.types import Dimension
from graphpass.ir.values import fixed_size, is_activation, is_scalar, multiplies_matrices

Label: TypeAlias = str | int | tuple[str | int | None, ...] | None

Labels: TypeAlias = tuple[Label, ...]

#: Axes of keys and values as operands of a product; axes of transposed keys.
BHLD: Labels = ("batch", "heads", "sequence", "head_dim")
BHDL: Labels = ("batch", "heads", "head_dim", "sequence")

#: The label of an axis from which an operator selects a part.
PART = "part"

#: Elementwise operators whose operands may be broadcast.
_COMBINED = ARITHMETIC | EXTREMA | {"Select"}

#: Operators that keep axes and elements of their first input, except for precision.
_SAME = CASTS | {"Clamp", "Clip", "Dropout", "FakeQuantize", "QuantizeLinear", "Round", "Tile"}

_INTEGERS = frozenset({"i8", "u8", "i4", "u4"})

StepKind = Literal[
    "join", "write", "slice", "part", "weights", "dequantized", "scale", "zero_point", "arithmetic", "loop"
]

#: Axis effects that the trace follows, with the kind of the path step; ``None`` for layout operators.
_PASSED: dict[str, StepKind | None] = {"move": None, "take": None, "cut": "slice", "part": "part", "write": "write"}


@dataclass(frozen=True, slots=True)
class PathStep:
    """An operator on a path, other than a layout operator.

    Attributes:
        kind: Effect of the operator, or the role of its operand on the path:

            - ``join``: Concat.
            - ``write``: scatter.
            - ``slice``: slice.
            - ``part``: Split, Gather of one index, or the slice of a loop's iteration.
            - ``weights``: product with weights.
            - ``dequantized``: dequantization of integers.
            - ``scale``, ``zero_point``: dequantization of other integers by this operand.
            - ``arithmetic``: elementwise operator with another activation.
            - ``loop``: entry or exit of a loop.
        node: The operator.
        labels: Labels of the axes along which it operates; of the candidates for ``write``.
    """

    kind: StepKind
    node: Node
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class TraceStep:
    """An input of an operator, labels of its axes, and the operator's path step."""

    value: Value
    labels: Labels
    passed: PathStep | None = None


@dataclass(frozen=True, slots=True)
class TracedValue:
    """A value on a trace, labels of its axes, and the path from the start."""

    value: Value
    labels: Labels
    path: tuple[PathStep, ...] = ()

    def passed(self, kind: str) -> bool:
        """Return whether the path has a step of this kind."""
        return any(step.kind == kind for step in self.path)


def trace_axes(start: TracedValue, follow: Callable[[TracedValue], Iterable[TraceStep]]) -> Iterator[TracedValue]:
    """Yield ``start`` and values upstream of it, breadth-first, each once per labels.

    Args:
        start: The first value.
        follow: Returns the steps from a value to inputs of its producer.
    """
    pending, seen = deque([start]), set()
    while pending:
        place = pending.popleft()
        if (place.value, place.labels) not in seen:
            seen.add((place.value, place.labels))
            yield place
            for step in follow(place):
                path = place.path if step.passed is None else (*place.path, step.passed)
                pending.append(TracedValue(step.value, step.labels, path))


def before(graph: Graph, value: Value, labels: Labels, sizes: Sizes | None = None) -> list[TraceStep]:
    """Return the inputs whose elements ``value`` contains, with labels; empty if unknown.

    Args:
        graph: The graph.
        value: A value.
        labels: Labels of its axes.
        sizes: Symbolic sizes, used if shapes do not determine the axes that a Reshape merges or splits.
    """
    node = graph.producer(value)
    source = node.input(0)
    if node.op in _COMBINED:
        return _operands(graph, node, labels)
    if node.op == "Concat":
        axis = node.attributes["axis"]
        join = PathStep("join", node, (labels[axis] if -len(labels) <= axis < len(labels) else None,))
        return [step for value in node.inputs for step in _step(value, labels, join)]
    if node.op == "If" and "joins" in node.attributes:
        return [step for value in node.inputs[1:] for step in _step(value, labels)]
    if node.op == "DequantizeLinear":
        kinds: tuple[StepKind, ...] = ("dequantized", "scale", "zero_point")
        roles = zip(kinds, node.inputs, strict=False)
        return [step for kind, value in roles for step in _step(value, labels, PathStep(kind, node))]
    if source is None:
        return []
    if node.op in LOOP_ENTRIES | LOOP_EXITS:
        return _around_loop(node, source, labels)
    if node.op in COMPRESSED_PRODUCTS or multiplies_matrices(node):
        # A product with weights as right operand replaces the last axis and keeps the others.
        if node.op in MATRIX_PRODUCTS and (is_activation(graph, node.inputs[1]) or node.attributes["transpose_a"]):
            return []
        inside = _aligned(source, labels)
        return _step(source, inside, PathStep("weights", node)) if len(inside or ()) > 1 else []
    assigned = assigned_slice(graph, node)
    if assigned is not None:
        return [step for value in (assigned.base, assigned.update) for step in _step(value, labels)]
    if node.op == "Reshape":
        return _step(source, _regrouped(source, node.outputs[0], labels, sizes))
    return _step(source, *_through(node, source, labels)) + _overwriting(node, labels)


def _through(node: Node, source: Value, labels: Labels) -> tuple[Labels | None, PathStep | None]:
    if node.op == "Broadcast":
        return _beside_copies(source, node.outputs[0], _aligned(source, labels)), None
    effect = axis_effect(node, len(labels))
    if effect is None or (effect.kind not in _PASSED and node.op not in _SAME):
        return None, None
    kind = "part" if effect.kind == "take" and effect.removed else _PASSED.get(effect.kind)
    along = effect.removed if effect.kind == "take" else tuple(labels[axis] for axis in effect.along)
    return _inside(effect, labels), PathStep(kind, node, along) if kind is not None else None


def _inside(effect: AxisEffect, labels: Labels) -> Labels:
    """Return the labels of the first input; `PART` for axes reduced to a part."""
    taken = PART if effect.kind in {"cut", "take", "iteration"} else None
    labelled: dict[int, Label] = dict.fromkeys(effect.removed, taken)
    labelled |= {origin: labels[axis] for axis, origin in enumerate(effect.origins) if origin is not None}
    return tuple(labelled[axis] for axis in range(len(labelled)))


def _regrouped(source: Value, result: Value, labels: Labels, sizes: Sizes | None) -> Labels | None:
    if source.shape is None or result.shape is None or len(result.shape) != len(labels):
        return None
    groups = axis_groups(source.shape, result.shape)
    if groups is None and sizes is not None:
        groups = axis_groups(_inferred(sizes, source), _inferred(sizes, result))
    if groups is None:
        return copies_merged(len(source.shape), labels)
    inside: list[Label] = []
    for olds, news in groups:
        known = [labels[axis] for axis in news]
        if len(olds) == 1 and news:
            real = [label for axis, label in zip(news, known, strict=True) if result.shape[axis] != 1]
            inside.append(_merged(real if len(news) > 1 else known))
        elif len(news) == 1:
            inside.extend(_taken_apart(source.shape, olds, known[0]))
        elif not news:
            inside.extend([None] * len(olds))
        else:
            return None
    return tuple(inside)


def _inferred(sizes: Sizes, value: Value) -> tuple[Dimension, ...]:
    shape = sizes.shape(value) or ()
    return tuple(int(size.args[0]) if size.op == "number" else repr(size) for size in shape)


def copies_merged(rank: int, labels: Labels) -> Labels | None:
    """Return the labels before a Reshape of unknown sizes that merges copies of heads.

    Args:
        rank: Rank of the Reshape's input.
        labels: Labels of its output's axes.

    Returns:
        Labels of the input, with ``None`` for the axis of copies; ``None`` unless the input has exactly one more axis
        and the output has an axis of heads.
    """
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
    if isinstance(label, tuple) and len(label) == len(axes):
        return list(label)
    if label == "rows" and len(axes) == 2:
        return ["batch", "heads"]
    real = [axis for axis in axes if shape[axis] != 1]
    if len(real) == 1:
        return [label if axis == real[0] else None for axis in axes]
    # The axis of copies follows the axis of heads.
    return [label if place == 0 and label == "heads" else None for place in range(len(axes))]


def _around_loop(node: Node, source: Value, labels: Labels) -> list[TraceStep]:
    effect, passed = axis_effect(node, len(labels)), PathStep("loop", node)
    if effect is None:
        return []
    inside = _inside(effect, labels)
    if node.op == "Sliced":
        kept = labels[effect.along[0]] if effect.along else None
        # The body keeps the label of a sliced axis with a name: batch, heads or sequence.
        passed = PathStep("slice", node, (kept,)) if isinstance(kept, str) else PathStep("part", node, (PART,))
        if not isinstance(kept, str):
            inside = tuple(PART if axis in effect.along else label for axis, label in enumerate(inside))
    return _step(source, inside, passed)


def _step(source: Value | None, labels: Labels | None, passed: PathStep | None = None) -> list[TraceStep]:
    if source is None or labels is None or source.rank not in {None, len(labels)}:
        return []
    return [TraceStep(source, labels, passed)]


def _overwriting(node: Node, labels: Labels) -> list[TraceStep]:
    """Return the updates of a ScatterNDUpdate, which may contain a part of the cache."""
    if node.op != "ScatterNDUpdate" or len(node.inputs) < 3:
        return []
    indices, updates = node.inputs[1:3]
    depth = fixed_size(indices, -1)
    if indices is None or indices.rank is None or depth is None:
        return []
    # Keys of content and positions (MLA) are assembled by writes to ranges of head_dim.
    written = ("head_dim",) if (labels[:depth], indices.rank) == (("head_dim",), 2) else (PART,) * (indices.rank - 1)
    return _step(updates, (*written, *labels[depth:]))


def _aligned(source: Value, labels: Labels) -> Labels | None:
    """Return labels without leading axes that broadcasting adds; ``None`` if ``source`` has more axes."""
    if source.shape is None:
        return labels
    return labels[len(labels) - len(source.shape) :] if len(source.shape) <= len(labels) else None


def _beside_copies(source: Value, result: Value, labels: Labels | None) -> Labels | None:
    """Return labels with ``heads`` moved from a head's copies to the head's own axis."""
    before, after = source.shape, result.shape
    if labels is None or before is None or after is None or len(before) != len(after) or "heads" not in labels:
        return labels
    copies = labels.index("heads")
    head = copies - 1
    if copies == 0 or labels[head] is not None or (before[head], before[copies], after[head]) != (1, 1, 1):
        return labels
    return (*labels[:head], "heads", None, *labels[copies + 1 :])


def _operands(graph: Graph, node: Node, labels: Labels) -> list[TraceStep]:
    # The condition of a Select is not content, and a value of rank 0 or 1 is not a cache.
    sources = [
        (port, source)
        for port, source in enumerate(node.inputs)
        if source is not None and (node.op != "Select" or port > 0) and (source.rank is None or source.rank > 1)
    ]
    return [
        step
        for port, source in sources
        for step in _step(source, _aligned(source, labels), _companion(graph, node, port, source))
    ]


def _companion(graph: Graph, node: Node, port: int, own: Value) -> PathStep | None:
    """Return the path step of an operand: scale, zero point, dequantized integers or arithmetic."""
    other = node.inputs[1 - port] if len(node.inputs) == 2 else None
    if other is not None and (is_scalar(other) or not is_activation(graph, other)):
        return None
    if other is None or node.op not in ARITHMETIC:
        return PathStep("arithmetic", node)
    integers, others = holds_integers(graph, own), holds_integers(graph, other)
    if integers and others:
        return PathStep("zero_point" if node.op == "Subtract" and port == 1 else "dequantized", node)
    if others:
        return PathStep("scale" if node.op in {"Multiply", "Divide"} else "zero_point", node)
    return PathStep("dequantized" if integers else "arithmetic", node)


def holds_integers(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` contains 4-bit or 8-bit integers, converted or shifted but not scaled.

    Args:
        graph: The graph.
        value: Operand of an elementwise operator. Integers of rank 0 or 1 do not count.
    """

    def shifts(node: Node) -> bool:
        return node.op in CASTS | {"Subtract"} and node.outputs[0].element_type not in _INTEGERS

    source = graph.look_through(value, shifts)
    return source.element_type in _INTEGERS and (source.rank is None or source.rank > 1)
