"""Matching of the operator chain that OpenVINO's plugins fuse: ``ReadValue -> Gather -> Concat -> SDPA``."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.pattern import look_through, op, var
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.quantizers import why_not_fused

_FED = "the past is an input of the model, not a variable: run make-stateful"

#: Operators allowed between Concat and attention: copies of kv heads and moves of axes.
_LAYOUT = frozenset({"Transpose", "Reshape", "Unsqueeze", "Broadcast", "Multiply"})


def _no_variable(node: Node) -> str:
    return _FED if node.op == "Parameter" else f"expected a ReadValue or Convert before the Gather, got {node.op}"


def _no_gather(node: Node) -> str:
    if node.op == "ReadValue":
        return "no Gather reorders the variable by beams"
    return _FED if node.op == "Parameter" else f"expected a Gather between the variable and the Concat, got {node.op}"


def _no_concat(node: Node) -> str:
    if node.op == "Concat":
        return f"Concat joins {len(node.inputs)} tensors, not the past and the new positions"
    return why_not_fused(node, f"expected a Concat of past and new positions, got {node.op}")


_READ = look_through(op.ReadValue(..., name="read", miss=_no_variable), frozenset({"Convert"}))

#: A Concat that appends new positions to a variable, which a Gather reorders by beams.
APPENDED = op.Concat(
    op.Gather(_READ, var("index"), ..., name="gather", miss=_no_gather), var(), name="concat", miss=_no_concat
)

_OPERAND = look_through(APPENDED, _LAYOUT)


@dataclass(frozen=True, slots=True)
class OperandChain:
    """The operators between a variable and the attention that reads it.

    Attributes:
        read: The ReadValue.
        gather: The Gather that reorders rows by beams.
        index: Indices of the Gather.
        concat: The Concat that appends new positions.
        layout: The operators between the Concat and attention, nearest to attention first.
        converts: The Converts between the ReadValue and the Gather.
    """

    read: Node
    gather: Node
    index: Value
    concat: Node
    layout: tuple[Node, ...]
    converts: tuple[Node, ...]


def trace_operand(graph: Graph, operand: Value) -> OperandChain:
    """Return the chain that ends in an operand of attention.

    Args:
        graph: The graph of the operand.
        operand: A key or value of attention.

    Raises:
        MissError: At the first node upstream of attention that is not part of a chain.
    """
    match = _OPERAND.require(graph, operand)
    read, gather, concat = (match.nodes[name] for name in ("read", "gather", "concat"))
    converts = graph.between(gather.source(), read)
    return OperandChain(read, gather, match["index"], concat, graph.between(operand, concat), converts)


def data_uses(graph: Graph, value: Value) -> tuple[Node, ...]:
    """Return the users of a value except ShapeOfs, which plugins fold before matching.

    Args:
        graph: The graph of the value.
        value: The value; a node with several uses of it is returned several times.
    """
    return tuple(use.node for use in graph.uses(value) if use.node.op != "ShapeOf")
