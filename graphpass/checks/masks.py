"""What is in an attention mask besides causality and padding, and where positions come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.masks import is_exposed_alibi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphpass.graph import Graph, Node, Value

__all__ = ["added_bias", "constant_window", "moved_positions", "positions_of_angles"]

#: Elements of the largest mask that is read: 4096 positions by 4096.
_LARGEST_MASK = 1 << 24

#: Operators that lay a mask out or cut a part from it.
_LAYOUT = frozenset(
    {
        "Broadcast",
        "Reshape",
        "Slice",
        "Squeeze",
        "StridedSlice",
        "Transpose",
        "Unsqueeze",
        "Gather",
        "Convert",
        "ConvertLike",
    }
)

_ARITHMETIC = frozenset({"Add", "Subtract", "Multiply", "Maximum", "Minimum", "Concat"})


def added_bias(graph: Graph, mask: Value | None) -> Node | None:
    """What makes numbers in ``mask`` say more than whether a position is seen: ALiBi, a table of distances."""
    pending, seen = [mask], set()
    while pending:
        value = pending.pop()
        node = graph.producer(value) if value is not None else None
        if node is None or value is None or node.index in seen or value.element_type == "boolean":
            continue
        seen.add(node.index)
        if node.op == "Select":
            pending.extend(
                branch for branch in node.inputs[1:] if branch is not None and not is_exposed_alibi(graph, branch)
            )
        elif node.op in _ARITHMETIC:
            pending.extend(node.inputs)
        elif node.op == "Gather" and _is_table(graph, node):
            return node
        elif node.op in _LAYOUT:
            pending.append(node.inputs[0])
        elif node.op == "ScatterNDUpdate":
            pending += [node.inputs[0], node.inputs[2]]
        elif node.op != "Constant" and node.op != "Parameter":
            return node
    return None


def _is_table(graph: Graph, gather: Node) -> bool:
    """Whether entries of a constant are looked up by what is computed."""
    table, indices = (graph.producer(value).op for value in gather.inputs[:2] if value is not None)
    return table == "Constant" and indices != "Constant"


def constant_window(graph: Graph, mask: Value | None) -> Node | None:
    """A constant, position by position, in ``mask`` that hides more than what comes later."""
    for node in graph.behind([mask], lambda node: () if node.op == "ShapeOf" else node.inputs):
        shape = node.outputs[0].shape if node.op == "Constant" else None
        if shape is not None and len(shape) >= 2 and shape[-1] == shape[-2] and isinstance(shape[-1], int):
            held = graph.constant(node.outputs[0], _LARGEST_MASK) if shape[-1] > 1 else None
            if held is not None and set(np.unique(held)) <= {0, 1}:
                seen_before = held.reshape(-1, shape[-1], shape[-1])[:, np.tri(shape[-1], dtype=bool)]
                if not (seen_before == seen_before.flat[0]).all():
                    return node
    return None


def moved_positions(graph: Graph) -> Node | None:
    """The Add that makes positions of a Range from 0 and the length of the past, and feeds Sin or Cos."""
    for node in positions_of_angles(graph):
        if node.op == "Add" and any(graph.producer(side).op == "Range" for side in node.inputs if side is not None):
            return node
    return None


def positions_of_angles(graph: Graph) -> Iterator[Node]:
    """The nodes, up to sizes and Ranges, that what feeds Sin and Cos comes from."""
    angles = [value for node in graph.of_op("Sin", "Cos") for value in node.inputs]
    return graph.behind(angles, lambda node: () if node.op in {"ShapeOf", "Range"} else node.inputs)
