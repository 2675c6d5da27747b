"""`Graph`: one read-only view over ONNX and OpenVINO graphs, on which every analysis works.

The vocabulary of operators is OpenVINO's (``Multiply``, ``Select``, ``Broadcast`` ...); ONNX operators that mean the
same are called by it. Inputs, outputs and constants are nodes (``Parameter``, ``Result``, ``Constant``) in both
dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from graphpass.ir.types import Dimension

if TYPE_CHECKING:
    import networkx
    import numpy

__all__ = ["Graph", "Node", "Use", "Value"]


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor: output ``port`` of node number ``node``.

    Attributes:
        node: Index of the node that makes it.
        port: Which of that node's outputs it is.
        name: The tensor's name; the node's name where it has none.
        shape: One entry a dimension; ``None`` where the rank is unknown.
        element_type: OpenVINO's short name; ``"dynamic"`` where unknown.
    """

    node: int
    port: int
    name: str
    shape: tuple[Dimension, ...] | None = field(compare=False)
    element_type: str = field(compare=False)

    @property
    def rank(self) -> int | None:
        """Number of dimensions; ``None`` where unknown."""
        return None if self.shape is None else len(self.shape)


@dataclass(frozen=True, slots=True)
class Node:
    """One operator.

    Attributes:
        index: Its number; inputs of a node have smaller numbers.
        name: As the model calls it.
        op: The operator, in OpenVINO's vocabulary where it has a word for it.
        inputs: What it reads; ``None`` for an omitted optional input.
        outputs: What it makes.
        attributes: Axes and flags in one form for both dialects: ``axis`` (Concat, Softmax, Gather), ``axes`` (Squeeze,
            Unsqueeze, Slice), ``steps_port`` (Slice), ``order`` (Transpose), ``transpose_a``/``transpose_b`` (MatMul),
            ``start``/``end`` (ShapeOf), ``upper`` (Trilu), ``causal`` (ScaledDotProductAttention), masks
            (StridedSlice), ``variable`` (ReadValue, Assign), ``names`` (Parameter, if it has several), and all of
            operators with states. Axes count from 0 if the rank is known.
        native: The `openvino.Node`, `onnx.NodeProto`, `onnx.ValueInfoProto` or `onnx.TensorProto`.
    """

    index: int
    name: str
    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attributes: Mapping[str, Any] = field(compare=False)
    native: Any = field(compare=False, repr=False)

    def source(self, port: int = 0) -> Value:
        """Return input ``port``, which is not omitted."""
        value = self.inputs[port]
        assert value is not None
        return value

    def input(self, port: int) -> Value | None:
        """Return input ``port``; ``None`` if it is omitted."""
        return self.inputs[port] if port < len(self.inputs) else None

    @property
    def called(self) -> str:
        """Operator and name, as evidence and messages mention it."""
        return f"{self.attributes.get('loop', self.op)} {self.name}"


@dataclass(frozen=True, slots=True)
class Use:
    """One place where a value is read: input ``port`` of ``node``."""

    node: Node
    port: int


class Graph:
    """Nodes in topological order, and who reads what."""

    def __init__(self, nodes: tuple[Node, ...], read_constant: Callable[[Node], numpy.ndarray | None]) -> None:
        """Create a view.

        Args:
            nodes: In topological order; ``nodes[i].index == i``.
            read_constant: Gives the value of a ``Constant`` node; ``None`` where nothing can read it.
        """
        self.nodes = nodes
        self._read_constant = read_constant
        #: What `graphpass.ir.constants` folded so far.
        self.folds: dict[Value, Any] = {}

    @cached_property
    def _uses(self) -> dict[tuple[int, int], list[Use]]:
        found: dict[tuple[int, int], list[Use]] = {}
        for node in self.nodes:
            for port, value in enumerate(node.inputs):
                if value is not None:
                    found.setdefault((value.node, value.port), []).append(Use(node, port))
        return found

    def producer(self, value: Value) -> Node:
        """The node that makes ``value``."""
        return self.nodes[value.node]

    def uses(self, value: Value) -> tuple[Use, ...]:
        """Where ``value`` is read, in node order."""
        return tuple(self._uses.get((value.node, value.port), ()))

    def backward(
        self, values: Iterable[Value | None], through: Callable[[Node], Iterable[Value | None]]
    ) -> Iterator[Node]:
        """Yield the producers of ``values`` and what lies upstream of them, each once.

        Args:
            values: Where to start.
            through: Which inputs of a node to follow further.
        """
        pending, seen = list(values), set()
        while pending:
            value = pending.pop()
            if value is None or value.node in seen:
                continue
            seen.add(value.node)
            node = self.nodes[value.node]
            yield node
            pending.extend(through(node))

    def forward(self, values: Iterable[Value], through: Callable[[Use], Iterable[Value]]) -> Iterator[Use]:
        """Yield the uses of ``values`` and what lies downstream of them, each once.

        Args:
            values: Where to start.
            through: Which outputs of the user to follow further.
        """
        pending, seen = list(values), set()
        while pending:
            value = pending.pop()
            for use in self.uses(value):
                if (use.node.index, use.port) not in seen:
                    seen.add((use.node.index, use.port))
                    yield use
                    pending.extend(through(use))

    def look_through(self, value: Value, ops: Container[str] | Callable[[Node], bool]) -> Value:
        """Return what lies upstream of ``value`` along first inputs, past all nodes that ``ops`` names or accepts."""
        while True:
            node = self.nodes[value.node]
            passes = ops(node) if callable(ops) else node.op in ops
            source = node.inputs[0] if passes and node.inputs else None
            if source is None:
                return value
            value = source

    @cached_property
    def parameters(self) -> Mapping[str, Value]:
        """The inputs by name, under each name that a runtime addresses them by."""
        found: dict[str, Value] = {}
        for node in self.of_op("Parameter"):
            found |= dict.fromkeys((*node.attributes.get("names", ()), node.name), node.outputs[0])
        return found

    def of_op(self, *ops: str) -> Iterator[Node]:
        """The nodes of these operators, in order."""
        return (node for node in self.nodes if node.op in ops)

    def constant(self, value: Value | None, limit: int = 4096) -> numpy.ndarray | None:
        """What ``value`` holds, where it is a constant of at most ``limit`` elements that can be read; else ``None``.

        Raises:
            FileNotFoundError: It lies in a file that is not there.
        """
        if value is None or value.shape is None:
            return None
        node = self.producer(value)
        if node.op != "Constant":
            return None
        size = 1
        for dimension in value.shape:
            if not isinstance(dimension, int):
                return None
            size *= dimension
        return self._read_constant(node) if size <= limit else None

    @cached_property
    def edges(self) -> networkx.DiGraph:
        """Node indices as a `networkx.DiGraph`, an edge from each node to each of its readers."""
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from(range(len(self.nodes)))
        graph.add_edges_from(
            (value.node, node.index) for node in self.nodes for value in node.inputs if value is not None
        )
        return graph

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """For each node, the length of the longest path that leads to it."""
        depths = [0] * len(self.nodes)
        for node in self.nodes:
            depths[node.index] = 1 + max((depths[value.node] for value in node.inputs if value is not None), default=-1)
        return tuple(depths)


def positive_axis(axis: int, rank: int | None) -> int:
    """``axis`` counted from 0 where the rank is known."""
    return axis + rank if axis < 0 and rank is not None else axis
