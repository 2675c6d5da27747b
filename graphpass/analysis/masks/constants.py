"""Read masks that a model keeps as a constant, position by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.operators import SHAPE_READERS
from graphpass.ir.values import MASKED_BELOW

if TYPE_CHECKING:
    import numpy

    from graphpass.ir.graph import Graph, Node, Value


#: Elements of the largest mask that is read: 4096 positions by 4096.
LARGEST_MASK = 1 << 24


def seen_in(constant: numpy.ndarray) -> numpy.ndarray | None:
    """Return the positions that a constant mask shows or hides; ``None`` if it weighs."""
    import numpy

    zero: numpy.ndarray = numpy.equal(constant, 0)
    if constant.dtype.kind != "f":
        return ~zero
    if not (~zero & (constant > MASKED_BELOW)).any():
        return zero
    # Ones are a mask, too: added numbers are made of them later on.
    return ~zero if (zero | (constant == 1)).all() else None


def band_of(seen: numpy.ndarray) -> tuple[int, bool] | None:
    """Return the window of a square mask and whether marked positions are seen.

    The last two axes are queries and keys. The window of a mask that is causal alone is as large as the mask.
    """
    import numpy

    rows, columns = seen.shape[-2:] if seen.ndim > 1 else (0, 1)
    planes = seen.reshape(-1, rows, columns) if rows == columns else seen[:0]
    if not len(planes) or not (planes == planes[0]).all():
        return None
    distance = numpy.arange(columns)[None, :] - numpy.arange(rows)[:, None]
    for marks_seen in (True, False):
        candidate = planes[0] if marks_seen else ~planes[0]
        last = int(candidate[-1].sum())
        if last > 1 and (candidate == ((distance <= 0) & (distance > -last))).all():
            return last, marks_seen
    return None


def constant_window(graph: Graph, mask: Value | None) -> Node | None:
    """Return a square constant in ``mask`` that hides more than later positions."""
    import numpy

    for node in graph.backward([mask], lambda node: () if node.op in SHAPE_READERS else node.inputs):
        shape = node.outputs[0].shape if node.op == "Constant" else None
        if shape is None or len(shape) < 2 or shape[-1] != shape[-2]:
            continue
        held = graph.constant(node.outputs[0], LARGEST_MASK)
        # Other whole numbers than 0 and 1 are no mask, but distances perhaps.
        if held is None or held.size < 2 or (held.dtype.kind != "f" and not numpy.isin(held, (0, 1)).all()):
            continue
        seen = seen_in(held)
        if seen is not None:
            earlier = seen[..., numpy.tri(held.shape[-1], dtype=bool)]
            if not (earlier == earlier.flat[0]).all():
                return node
    return None
