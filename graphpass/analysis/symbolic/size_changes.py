"""Sizes of axes that an operator changes, from the sizes and integers of its operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphpass.analysis.symbolic.bounds import is_natural
from graphpass.analysis.symbolic.equal_sizes import Vector, dimension, dimensions, is_linear, is_negative
from graphpass.analysis.symbolic.expressions import ONE, ZERO, Expr, add, multiply, number, subtract
from graphpass.analysis.symbolic.nodes import from_polynomial, polynomial
from graphpass.analysis.symbolic.operand_sizes import OperandSizes
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.axes import AxisEffect
from graphpass.ir.cuts import NO_END, cuts
from graphpass.ir.graph import Node, Value


@dataclass(frozen=True, slots=True)
class AxisChange:
    """An axis whose size an operator changes.

    Attributes:
        node: The operator.
        value: Its output.
        effect: Its effect on axes.
        axis: The axis of the output.
        place: Index of the axis in ``effect.along``.
    """

    node: Node
    value: Value
    effect: AxisEffect
    axis: int
    place: int


def _cut(sizes: OperandSizes, change: AxisChange, shape: Vector) -> Expr | None:
    inputs, origin = change.node.inputs, change.effect.origins[change.axis] or 0
    whole = shape[origin]
    if isinstance(whole.as_number, int) and whole.as_number >= 0:
        for cut in cuts(change.node, sizes.numbers):
            if cut.axis % len(shape) == origin and cut.start is not None and cut.stop is not None and cut.step:
                # With a negative step, a start before index 0 is 0, and a stop before it includes it.
                is_open = cut.step < 0 and cut.stop < -whole.as_number
                start = max(cut.start, -whole.as_number) if cut.step < 0 else cut.start
                kept = slice(start, None if is_open else cut.stop, cut.step)
                return number(len(range(*kept.indices(whole.as_number))))
    bounds = [sizes.content(source) for source in inputs[1:3]]
    port = change.node.attributes.get("steps_port", len(inputs))
    steps = sizes.content(inputs[port]) if port < len(inputs) else (ONE,)
    if change.node.op != "Slice" or not steps or any(step is not ONE for step in steps):
        return None
    if any(bound is None or len(bound) != len(change.effect.along) for bound in bounds):
        return None
    first, last = (bound[change.place] for bound in bounds if bound is not None)
    stop = _position(whole, last)
    if not sizes.proves:
        begin = _position(whole, first)
        size = subtract(stop, begin)
        if (count := size.as_number) is not None and count <= 0:
            return ZERO
        is_within = is_natural(begin) and is_natural(size)
        if begin is not ZERO and not is_within and len(dimensions(whole)) == 1:
            # x[-4:] is shorter on a shorter axis, and x[1:] on an empty one. An axis of several dimensions is a state
            # followed by new tokens; the state is as long as the slice.
            sizes.has_outer_cuts = True
            if sizes.is_exact:
                return None
        own = {atom for atom, _ in dimensions(whole)}
        if is_linear(size) and any(factor < 0 and atom in own for atom, factor in dimensions(size)):
            # x[-1:7] is shorter for a longer axis, and empty from 8 on.
            return None
        # Assume that the axis is at least as long as the slice.
        if not is_natural(subtract(whole, stop)):
            sizes.cut_short[change.value.node, change.axis] = size, whole
        return size
    if first is not ZERO or not is_natural(stop):
        return None
    if is_natural(subtract(stop, whole)):
        return whole
    return stop if is_natural(subtract(whole, stop)) else None


def _part(sizes: OperandSizes, change: AxisChange, shape: Vector) -> Expr | None:
    node = change.node
    stated = None if len(node.inputs) > 1 else _stated_lengths(node)
    if node.op == "Split" or stated == ():
        return quotient(shape[change.axis], len(node.outputs))
    lengths = sizes.content(node.inputs[-1]) if stated is None else stated
    size = lengths[change.value.port] if lengths is not None and len(lengths) == len(node.outputs) else None
    return size if size is not None and is_natural(size) else None


def _stated_lengths(node: Node) -> Vector:
    """Return the attribute of lengths, as before opset 13; empty for equal parts."""
    return tuple(map(number, native_attributes(node).get("split", ())))


def _taken(sizes: OperandSizes, change: AxisChange, _: Vector) -> Expr | None:
    indices = sizes.shape(change.node.inputs[1])
    return None if indices is None else indices[change.place - len(change.effect.along)]


def _padded(sizes: OperandSizes, change: AxisChange, shape: Vector) -> Expr | None:
    # OpenVINO's Pad has inputs pads_begin and pads_end, ONNX's one input for both.
    contents = [sizes.integers(source) for source in change.node.inputs[1:3]]
    pads = [size for content in contents for size in content or ()]
    before, after = (*pads[change.axis :: len(shape)][:2], None, None)[:2]
    return None if before is None or after is None else add(shape[change.axis], before, after)


def _copied(sizes: OperandSizes, change: AxisChange, shape: Vector) -> Expr | None:
    repeats, origin = sizes.content(change.node.inputs[1]), change.effect.origins[change.axis]
    if repeats is None or origin is None or len(repeats) != len(shape):
        return None
    size = multiply(shape[origin], repeats[origin])
    return size if is_linear(size) else None


def _iterated(sizes: OperandSizes, change: AxisChange, shape: Vector) -> Expr | None:
    if change.node.op == "Sliced":
        return ONE
    iterations = sizes.iterations.setdefault(change.node.called, dimension((change.node.called, "iterations")))
    return iterations if change.effect.origins[change.axis] is None or shape[change.axis] is ONE else None


def _position(size: Expr, bound: Expr) -> Expr:
    """Return the index that a Slice's bound denotes on an axis of ``size``."""
    value = bound.as_number
    if value is not None and value >= NO_END:
        return size
    return add(size, bound) if is_negative(bound) else bound


def quotient(size: Expr, by: int) -> Expr | None:
    """Return the exact quotient of a size by an integer; ``None`` if inexact.

    Truncating and flooring division differ for inexact quotients.

    Args:
        size: A linear expression of dimensions.
        by: The divisor.
    """
    terms = polynomial(size)
    if not by or any(factor % by for factor in terms.values()):
        return None
    return from_polynomial({monomial: factor // by for monomial, factor in terms.items()})


#: Size of a changed axis by kind of effect; other kinds keep the input's size.
CHANGES: dict[str, Callable[[OperandSizes, AxisChange, Vector], Expr | None]] = {
    "cut": _cut,
    "part": _part,
    "take": _taken,
    "rows": _taken,
    "reduce": lambda *_: ONE,
    "pad": _padded,
    "copy": _copied,
    "product": lambda *_: None,
    "window": lambda *_: None,
    "iteration": _iterated,
}
