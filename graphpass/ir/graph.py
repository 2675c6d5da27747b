"""`Graph`: a read-only view of ONNX and OpenVINO graphs for all analyses.

Operators have OpenVINO's names (``Multiply``, ``Select``, ``Broadcast`` ...), equivalent operators of ONNX included.
Inputs, outputs and constants are nodes (``Parameter``, ``Result``, ``Constant``) in both dialects.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from graphpass.errors import UnsupportedError
from graphpass.ir.types import Dimension

if TYPE_CHECKING:
    import networkx
    import numpy


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor: output ``port`` of the node with index ``node``.

    Attributes:
        node: Index of its producer.
        port: Index of the output of the producer.
        name: The tensor's name; the node's name if the tensor has none.
        shape: One entry per dimension; ``None`` if the rank is unknown.
        element_type: OpenVINO's short name; ``"dynamic"`` if unknown.
    """

    node: int
    port: int
    name: str
    shape: tuple[Dimension, ...] | None = field(compare=False)
    element_type: str = field(compare=False)

    def __hash__(self) -> int:
        """Return a hash that is equal in all processes; the order of sets is reproducible."""
        return self.node << 6 ^ self.port

    @property
    def rank(self) -> int | None:
        """Return the number of dimensions; ``None`` if unknown."""
        return None if self.shape is None else len(self.shape)


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        index: Its index in topological order, larger than those of the producers of its inputs.
        name: Its name in the model.
        op: The operator, by OpenVINO's name if OpenVINO has it.
        inputs: Its inputs; ``None`` for an omitted one.
        outputs: Its outputs.
        attributes: Axes and flags in one form for both dialects, and all attributes of operators with states. Axes
            count from 0 if the rank is known.

            - ``axis``: Concat, Softmax, Gather
            - ``axes``: Squeeze, Unsqueeze, Slice
            - ``steps_port``: Slice
            - ``order``: Transpose
            - ``transpose_a``, ``transpose_b``: MatMul
            - ``start``, ``end``: ShapeOf
            - ``upper``: Trilu
            - ``causal``: ScaledDotProductAttention
            - masks: StridedSlice
            - ``variable``: ReadValue, Assign
            - ``names``: Parameter with several names
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
        """Return input ``port``.

        Raises:
            UnsupportedError: GP310, the input is omitted.
        """
        value = self.input(port)
        if value is None:
            raise UnsupportedError("GP310", f"the model is not valid: {self.called} has no input {port}")
        return value

    def input(self, port: int) -> Value | None:
        """Return input ``port``; ``None`` if it is omitted."""
        return self.inputs[port] if port < len(self.inputs) else None

    @property
    def sources(self) -> tuple[Value, ...]:
        """Return the inputs without omitted ones."""
        return tuple([value for value in self.inputs if value is not None])

    def present(self, ports: Iterable[int]) -> list[Value]:
        """Return the inputs at ``ports`` without omitted ones."""
        return [value for port in ports if (value := self.input(port)) is not None]

    @property
    def called(self) -> str:
        """Return operator and name, for evidence and messages."""
        return f"{self.attributes.get('loop', self.op)} {self.name}"


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a value: input ``port`` of ``node``."""

    node: Node
    port: int


@dataclass(frozen=True, slots=True)
class Spelling:
    """The arguments of `graphpass.ir.writer.NodeMaker.make` that create an operator.

    Attributes:
        kind: The neutral name. An operator without a neutral name has its native name after a prefix of the dialect:
            ``onnx.Pad``, ``com.microsoft.GroupQueryAttention``, ``opset1.Gather``.
        inputs: The operands, without those that are attributes in the neutral form.
        attributes: Neutral attributes, then the operator's own; defaults of `make` are omitted.
    """

    kind: str
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]


#: Maximum number of elements of a constant that a graph keeps once it is read.
_MOST_KEPT = 4096


class Graph:
    """A read-only graph: nodes in topological order, and the uses of their outputs."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        read_constant: Callable[[Node], numpy.ndarray | None],
        spell: Callable[[Graph, Node], Spelling],
    ) -> None:
        """Create a view.

        Args:
            nodes: In topological order; ``nodes[i].index == i``.
            read_constant: Returns the elements of a ``Constant`` node; ``None`` if they cannot be read.
            spell: Returns the spelling of an operator.
        """
        self.nodes = nodes
        self._read_constant = read_constant
        self._constants: dict[int, numpy.ndarray | None] = {}
        self._spell = spell
        #: Results of `graphpass.analysis.symbolic.folding`, by value.
        self.folds: dict[Value, Any] = {}

    @cached_property
    def _uses(self) -> dict[tuple[int, int], list[Use]]:
        uses: dict[tuple[int, int], list[Use]] = {}
        for node in self.nodes:
            for port, value in enumerate(node.inputs):
                if value is not None:
                    uses.setdefault((value.node, value.port), []).append(Use(node, port))
        return uses

    def producer(self, value: Value) -> Node:
        """Return the node that computes ``value``."""
        return self.nodes[value.node]

    def uses(self, value: Value) -> tuple[Use, ...]:
        """Return the uses of ``value``, in node order."""
        return tuple(self._uses.get((value.node, value.port), ()))

    def backward(
        self, values: Iterable[Value | None], through: Callable[[Node], Iterable[Value | None]]
    ) -> Iterator[Node]:
        """Yield the producers of ``values`` and the nodes upstream, each once.

        Args:
            values: Start of the search; ``None`` entries are ignored.
            through: Returns the inputs of a node that the search follows.
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

    def operands_first(
        self, values: Iterable[Value | None], through: Callable[[Node], Iterable[Value | None]]
    ) -> Iterator[Node]:
        """Yield the nodes of `backward`, each once and after the nodes upstream of it.

        The order depends on operands only, not on the order of nodes in the graph.

        Args:
            values: Start of the search; ``None`` entries are ignored.
            through: Returns the inputs of a node that the search follows.
        """
        # A node is visited again after its inputs.
        pending, seen = [(value, False) for value in reversed([*values])], set[int]()
        while pending:
            value, is_ready = pending.pop()
            if value is None or value.node in seen:
                continue
            node = self.nodes[value.node]
            if is_ready:
                seen.add(value.node)
                yield node
            else:
                pending.append((value, True))
                pending += [(source, False) for source in reversed([*through(node)])]

    def forward(self, values: Iterable[Value], through: Callable[[Use], Iterable[Value]]) -> Iterator[Use]:
        """Yield the uses of ``values`` and the uses downstream, each once.

        Args:
            values: Start of the search.
            through: Returns the outputs of a user that the search follows.
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
        """Follow first inputs upstream of ``value``.

        Args:
            value: Start of the search.
            ops: Operators whose nodes are followed, or a function that returns whether a node is followed.

        Returns:
            The first value whose producer is not followed or has no first input.
        """
        while True:
            node = self.nodes[value.node]
            passes = ops(node) if callable(ops) else node.op in ops
            source = node.inputs[0] if passes and node.inputs else None
            if source is None:
                return value
            value = source

    def between(self, value: Value, end: Node) -> tuple[Node, ...]:
        """Return the nodes upstream of ``value`` along first inputs, up to ``end``.

        Args:
            value: Output of the first returned node.
            end: The node upstream at which the path stops; excluded.
        """
        nodes = []
        while (node := self.producer(value)) != end:
            nodes.append(node)
            value = node.source()
        return tuple(nodes)

    @cached_property
    def parameters(self) -> Mapping[str, Value]:
        """Return the inputs of the model by each of their names."""
        parameters: dict[str, Value] = {}
        for node in self.of_op("Parameter"):
            parameters |= dict.fromkeys((*node.attributes.get("names", ()), node.name), node.outputs[0])
        return parameters

    @cached_property
    def reads(self) -> Mapping[str, Node]:
        """Return the Parameters and ReadValues, which read caches, by name."""
        return {node.name: node for node in self.of_op("Parameter", "ReadValue")}

    @cached_property
    def writes(self) -> Mapping[str | None, Node]:
        """Return the Results and Assigns, which write caches, by name."""
        writes: dict[str | None, Node] = {node.name: node for node in self.of_op("Result", "Assign")}
        return writes

    def of_op(self, *ops: str) -> Iterator[Node]:
        """Return the nodes of these operators, in order."""
        groups = [self._by_op.get(op, ()) for op in ops]
        return iter(groups[0]) if len(groups) == 1 else heapq.merge(*groups, key=lambda node: node.index)

    @cached_property
    def _by_op(self) -> Mapping[str, Sequence[Node]]:
        by_op: dict[str, list[Node]] = {}
        for node in self.nodes:
            by_op.setdefault(node.op, []).append(node)
        return by_op

    def constant(self, value: Value | None, limit: int = 4096) -> numpy.ndarray | None:
        """Return the elements of a small, readable constant.

        Args:
            value: Any value of the graph; ``None`` for an omitted input.
            limit: Largest number of elements to read.

        Returns:
            The elements in the constant's shape; ``None`` for other values.

        Raises:
            FileNotFoundError: The file with its elements does not exist.
        """
        if value is None or value.shape is None:
            return None
        node = self.producer(value)
        if node.op != "Constant":
            return None
        sizes = [size for size in value.shape if isinstance(size, int)]
        count = math.prod(sizes)
        if len(sizes) < len(value.shape) or count > limit:
            return None
        if node.index in self._constants:
            return self._constants[node.index]
        constant = self._read_constant(node)
        if count <= _MOST_KEPT:
            if constant is not None:
                constant.flags.writeable = False
            self._constants[node.index] = constant
        return constant

    def spelling(self, node: Node) -> Spelling:
        """Return the arguments of `NodeMaker.make` that create ``node``."""
        return self._spell(self, node)

    @cached_property
    def edges(self) -> networkx.DiGraph:
        """Return the edges from the index of each node to the indices of its users."""
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from(range(len(self.nodes)))
        graph.add_edges_from((value.node, node.index) for node in self.nodes for value in node.sources)
        return graph

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Return the length of the longest path to each node, by index."""
        depths = [0] * len(self.nodes)
        for node in self.nodes:
            depths[node.index] = 1 + max((depths[value.node] for value in node.sources), default=-1)
        return tuple(depths)


def positive_axis(axis: int, rank: int | None) -> int:
    """Return ``axis`` counted from 0.

    Args:
        axis: Index of an axis, counted from the end if negative.
        rank: Rank of the tensor; ``None`` if unknown, which leaves ``axis`` unchanged.
    """
    return axis + rank if axis < 0 and rank is not None else axis
