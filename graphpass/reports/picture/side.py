"""Description of the operators of one model, by layer."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from graphpass.ir.graph import Node, Value
from graphpass.ir.model import Model
from graphpass.ir.types import shape_text
from graphpass.ir.values import known_elements
from graphpass.reports.diff.operators import PRINTED, attributes_of, constant_in_words, operators_of
from graphpass.reports.picture.highlights import Highlight
from graphpass.reports.picture.segments import BEFORE, segments_of

#: Segment of nodes downstream of all layers.
AFTER = -2


class Side:
    """One model of a picture, with its operators by segment.

    Attributes:
        segments: Layer of each operator.
        members: Operators of each segment, in execution order.
        marks: Highlights of the operators, by index.
    """

    def __init__(self, model: Model, marks: Mapping[str, Highlight], ports: Mapping[str, Highlight]) -> None:
        """Create a side.

        Args:
            model: The model.
            marks: Highlights of operators, by name.
            ports: Highlights of inputs and outputs, by name.
        """
        self._model = model
        self.segments = segments_of(model)
        self._graph = self.segments.graph
        self._keys = {node.index: key for key, node in operators_of(model).items()}
        self.members: dict[int, list[Node]] = defaultdict(list)
        self._constant_texts: dict[int, str | None] = {}
        self._symbols = {size for port in model.inputs for size in port.shape or () if isinstance(size, str)}
        #: Constants, and Identities of constants, which exporters write for equal weights.
        self._constants: set[int] = set()
        for node in self._graph.nodes:
            if node.op == "Constant" or (node.op == "Identity" and node.source().node in self._constants):
                self._constants.add(node.index)
            else:
                layer = self.segments.of_node[node.index]
                self.members[AFTER if 0 < self.segments.layers == layer else layer].append(node)
        same = Highlight("same")
        self.marks = {
            node.index: marks.get(self._keys.get(node.index, "")) or ports.get(node.name) or same
            for nodes in self.members.values()
            for node in nodes
        }
        self._texts = {index: self._text(self._graph.nodes[index]) for index in self.marks}
        self._hashes = self._hash()

    def likeness(self, layer: int) -> object:
        """Return a key that is equal for layers of equal structure."""
        return tuple(sorted(self._hashes[node.index] for node in self.members.get(layer, ())))

    def _text(self, node: Node) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Return operator, result and attributes as text."""
        result = "; ".join(map(self._type, node.outputs))
        variable = node.attributes.get("variable")
        stated = attributes_of(node, self._model).items()
        attributes = tuple(sorted((name, text) for name, text in stated if text != variable))
        return node.attributes.get("loop", node.op), result, attributes

    def _type(self, value: Value) -> str:
        """Return element type and shape; only symbolic dimensions of inputs have names.

        Shape inference numbers other symbols differently in each layer.
        """
        shape = value.shape
        if shape is not None:
            shape = tuple(size if isinstance(size, int) or size in self._symbols else None for size in shape)
        return f"{value.element_type} {shape_text(shape)}"

    def _constant(self, index: int) -> str | None:
        """Return a constant of few elements as text; ``None`` for a weight."""
        if index not in self._constant_texts:
            value = self._weight(self._graph.nodes[index].outputs[0])
            count = known_elements(value)
            # Several floating-point elements are trained parameters: a norm's weights, decays of a recurrent state.
            is_few = count <= (1 if "f" in value.element_type else PRINTED)
            constant = constant_in_words(self._graph.nodes[value.node], self._graph) if is_few else None
            self._constant_texts[index] = constant
        return self._constant_texts[index]

    def _weight(self, value: Value) -> Value:
        """Return the constant upstream of Identities."""
        return self._graph.look_through(value, {"Identity"})

    def _hash(self) -> dict[int, int]:
        """Return a hash for each node, of operator, producers and users in its segment."""
        up: dict[int, int] = {}
        layer_of = self.segments.of_node
        for index in sorted(self.marks):
            node, mark = self._graph.nodes[index], self.marks[index]
            reads: list[object] = []
            for value in node.inputs:
                if value is None:
                    reads.append(None)
                elif value.node in self._constants:
                    reads.append(self._constant(value.node) or (value.element_type, value.shape))
                elif self._is_start(index, value.node):
                    reads.append(("start", value.port))
                elif layer_of[value.node] == layer_of[index]:
                    reads.append((up[value.node], value.port))
                elif layer_of[value.node] == BEFORE:
                    reads.append(("before", value.node, value.port))
                else:
                    reads.append((layer_of[index] - layer_of[value.node], self._graph.nodes[value.node].op, value.port))
            facets = None if mark.facets is None else tuple(mark.facets)
            up[index] = hash((self._texts[index], mark.status, facets, tuple(reads)))
        hashes: dict[int, int] = {}
        for index in sorted(self.marks, reverse=True):
            users = sorted(
                hash((hashes[use.node.index], use.port))
                for value in self._graph.nodes[index].outputs
                for use in self._graph.uses(value)
                if layer_of[use.node.index] == layer_of[index]
            )
            hashes[index] = hash((up[index], tuple(users)))
        return hashes

    def _is_start(self, index: int, producer: int) -> bool:
        """Return whether ``producer`` computes the hidden state that is the input of a node's layer."""
        layer_of = self.segments.of_node
        return producer in self.segments.starts and layer_of[producer] == layer_of[index] - 1

    def ordered(self, segment: int, priorities: Mapping[str, int]) -> list[Node]:
        """Return the nodes of a segment in the topological order closest to ``priorities``.

        Args:
            segment: The segment.
            priorities: Positions of operators in the other model, by key.
        """
        nodes = self.members[segment]
        inside = {node.index for node in nodes}
        urgency: dict[int, int] = {}
        for node in reversed(nodes):
            users = (use.node.index for value in node.outputs for use in self._graph.uses(value))
            own = priorities.get(self.key(node.index))
            soonest = min((urgency[user] for user in users if user in inside), default=len(priorities))
            urgency[node.index] = soonest if own is None else own
        waits = {node.index: len({value.node for value in node.sources} & inside) for node in nodes}
        ready = [(urgency[index], index) for index, count in waits.items() if not count]
        heapq.heapify(ready)
        order = []
        while ready:
            node = self._graph.nodes[heapq.heappop(ready)[1]]
            order.append(node)
            for user in {use.node.index for value in node.outputs for use in self._graph.uses(value)} & inside:
                waits[user] -= 1
                if not waits[user]:
                    heapq.heappush(ready, (urgency[user], user))
        return order

    def key(self, index: int) -> str:
        """Return the key of a node, which is unique and equal in both models."""
        node = self._graph.nodes[index]
        return f"{node.op} {node.name}" if node.op in {"Parameter", "Result"} else self._keys[index]

    def partner(self, index: int) -> str:
        """Return the key of the corresponding operator in the second model."""
        return self.marks[index].partner or self.key(index)

    def describe(self, segments: Sequence[int], first: Sequence[Node]) -> dict[str, Any]:
        """Return the object of segments with equal structure, one of the ``sides`` of `picture_of`.

        Args:
            segments: The segments, keys of `members`.
            first: Operators of the first segment, in display order.
        """
        positions = {node.index: position for position, node in enumerate(first)}
        weights: dict[tuple[int, int], int] = {}
        nodes = [self._node(node, positions, weights) for node in first]
        types = [self._type(first[position].source(port)) for position, port in weights]
        names = []
        for segment in segments:
            ordered = self._in_order(first, self.members[segment])
            read = [self._graph.nodes[self._weight(ordered[at].source(port)).node].name for at, port in weights]
            names.append([*(self._name(node) for node in ordered), *read])
        return {"nodes": nodes, "weights": types, "names": names}

    def _in_order(self, first: Sequence[Node], nodes: Sequence[Node]) -> list[Node]:
        """Return ``nodes`` in the order of the corresponding nodes in ``first``."""
        queues: dict[int, list[Node]] = defaultdict(list)
        for node in reversed(nodes):
            queues[self._hashes[node.index]].append(node)
        return [queues[self._hashes[node.index]].pop() for node in first]

    def _name(self, node: Node) -> str:
        return self._keys.get(node.index, node.name).removeprefix("output ") if node.op == "Result" else node.name

    def _node(self, node: Node, positions: Mapping[int, int], weights: dict[tuple[int, int], int]) -> list[Any]:
        operator, result, attributes = self._texts[node.index]
        mark = self.marks[node.index]
        reads: list[str | int] = []
        for port, value in enumerate(node.inputs):
            if value is None:
                reads.append("nothing")
                continue
            producer = self._graph.nodes[value.node]
            if value.node in positions:
                reads.append(positions[value.node])
            elif self._is_start(node.index, value.node):
                reads.append("the layer's input")
            elif value.node not in self._constants:
                reads.append(self._distant(node, producer))
            elif (constant := self._constant(value.node)) is not None:
                reads.append(constant)
            else:
                reads.append(-1 - weights.setdefault((positions[node.index], port), len(weights)))
        facets = {} if mark.facets is None else dict(mark.facets)
        return [operator, mark.status, result, dict(attributes), reads, facets]

    def _distant(self, node: Node, producer: Node) -> str:
        """Return a text on a producer in another segment."""
        layer, source = (self.segments.of_node[end.index] for end in (node, producer))
        if source == BEFORE or layer == BEFORE:
            return producer.called
        return f"{producer.op}, {layer - source} layer{'s' if layer - source > 1 else ''} up"
