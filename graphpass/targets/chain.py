"""The way from a cache to attention that plugins fuse: ``ReadValue -> Gather -> Concat -> SDPA``, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Node, Value

__all__ = ["Chain", "PatternBreakError", "appending", "data_uses", "trace"]


class PatternBreakError(Exception):
    """That a node does not fit into a pattern."""

    def __init__(self, node: Node, reason: str) -> None:
        """Create one.

        Args:
            node: The node.
            reason: What is wrong with it, as a sentence without its end.
        """
        super().__init__(reason)
        self.node = node
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Chain:
    """What lies between a variable and attention that reads it.

    Attributes:
        read: The ReadValue.
        gather: Reorders it by beams.
        concat: Appends the new positions.
        layout: What lies between the Concat and attention, nearest to attention first.
        converts: What converts the variable before the Gather.
    """

    read: Node
    gather: Node
    concat: Node
    layout: tuple[Node, ...]
    converts: tuple[Node, ...]


#: What copies the heads of grouped queries, and what moves axes; all other operators break the pattern.
_LAYOUT = frozenset({"Transpose", "Reshape", "Unsqueeze", "Broadcast", "Multiply"})


def data_uses(graph: Graph, value: Value) -> tuple[Node, ...]:
    """Who reads ``value`` for more than its shape; plugins take such reads apart before they look for patterns."""
    return tuple(use.node for use in graph.uses(value) if use.node.op != "ShapeOf")


def trace(graph: Graph, operand: Value) -> Chain:
    """The chain that ends in ``operand``, which attention reads as key or value.

    Raises:
        PatternBreakError: At the first node, from attention on, that is none of it.
    """
    layout = []
    node = graph.producer(operand)
    while node.op in _LAYOUT and node.inputs[0] is not None:
        layout.append(node)
        node = graph.producer(node.inputs[0])
    if node.op != "Concat":
        raise PatternBreakError(node, f"{node.op} stands where the Concat of past and new positions is looked for")
    read, gather, converts = appending(graph, node)
    return Chain(read, gather, node, tuple(layout), converts)


def appending(graph: Graph, concat: Node) -> tuple[Node, Node, tuple[Node, ...]]:
    """The ReadValue, the Gather and the Converts between them, of which ``concat`` appends to.

    Raises:
        PatternBreakError: Something else stands there.
    """
    if len(concat.inputs) != 2 or concat.inputs[0] is None:
        raise PatternBreakError(
            concat, f"Concat joins {len(concat.inputs)} tensors, not the past and the new positions"
        )
    gather = graph.producer(concat.inputs[0])
    if gather.op == "Parameter":
        raise PatternBreakError(gather, "the past is an input of the model, not a variable: run make-stateful")
    if gather.op == "ReadValue":
        raise PatternBreakError(gather, "no Gather reorders the variable by beams")
    if gather.op != "Gather":
        raise PatternBreakError(gather, f"{gather.op} stands between the variable and the Concat")
    converts = []
    value = gather.inputs[0]
    assert value is not None
    read = graph.producer(value)
    while read.op == "Convert" and read.inputs[0] is not None:
        converts.append(read)
        read = graph.producer(read.inputs[0])
    if read.op == "Parameter":
        raise PatternBreakError(read, "the past is an input of the model, not a variable: run make-stateful")
    if read.op != "ReadValue":
        raise PatternBreakError(read, f"{read.op} stands between the variable and the Gather")
    return read, gather, tuple(converts)
