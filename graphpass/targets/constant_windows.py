"""Detection of windows that a model stores as a constant mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.analysis.symbolic.constants import LARGEST_MASK
from graphpass.ir.operators import SHAPE_READERS
from graphpass.ir.values import MASKED_BELOW

if TYPE_CHECKING:
    import numpy

    from graphpass.ir.graph import Graph, Node, Value


def constant_window(graph: Graph, mask: Value | None) -> Node | None:
    """Return a square constant upstream of ``mask`` that hides other positions than later ones.

    Args:
        graph: The graph of the mask.
        mask: The mask operand of attention; ``None`` for attention without one.
    """
    import numpy

    for node in graph.backward([mask], lambda node: () if node.op in SHAPE_READERS else node.inputs):
        shape = node.outputs[0].shape if node.op == "Constant" else None
        if shape is None or len(shape) < 2 or shape[-1] != shape[-2]:
            continue
        constant = graph.constant(node.outputs[0], LARGEST_MASK)
        # Integers other than 0 and 1 are not a mask, but for example distances.
        if (
            constant is None
            or constant.size < 2
            or (constant.dtype.kind != "f" and not numpy.isin(constant, (0, 1)).all())
        ):
            continue
        seen = _seen_in(constant)
        if seen is not None:
            earlier = seen[..., numpy.tri(constant.shape[-1], dtype=bool)]
            if not (earlier == earlier.flat[0]).all():
                return node
    return None


def _seen_in(constant: numpy.ndarray) -> numpy.ndarray | None:
    """Return the mask as booleans; ``None`` if the constant is a bias."""
    import numpy

    zero: numpy.ndarray = numpy.equal(constant, 0)
    if constant.dtype.kind != "f":
        return ~zero
    if not (~zero & (constant > MASKED_BELOW)).any():
        return zero
    # A mask of ones and zeros is converted to a bias downstream.
    return ~zero if (zero | (constant == 1)).all() else None
