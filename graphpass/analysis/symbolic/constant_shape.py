"""Replace Reshape's shape operand with a constant."""

from __future__ import annotations

from graphpass.analysis.symbolic.equal_sizes import Vector
from graphpass.analysis.symbolic.expressions import ZERO
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.graph import Node


def constant_shape(node: Node, sizes: Sizes) -> list[int] | None:
    """Return a constant shape for a Reshape; ``None`` if no constant is equivalent.

    Args:
        node: The Reshape.
        sizes: Sizes of the node's graph, which evaluate its shape operand.

    Returns:
        Fixed sizes, 0 for a size that is copied from the same axis, and at most one -1 for a size that is inferred.
    """
    target, source = sizes.content(node.inputs[1]), sizes.shape(node.source()) or ()
    if target is None:
        return None
    shape = [_copied_or_number(node, axis, source, target) for axis in range(len(target))]
    if shape.count(-1) > 1 or None in shape:
        return None
    return [size for size in shape if size is not None]


def _copied_or_number(node: Node, axis: int, source: Vector, target: Vector) -> int | None:
    """Return a size, 0 (copied) or -1 (inferred); ``None`` for a literal 0."""
    size = target[axis]
    if size is ZERO and not node.attributes.get("special_zero", True):
        return None
    if size.op == "number":
        return int(size.args[0])
    return 0 if axis < len(source) and source[axis] is size else -1
