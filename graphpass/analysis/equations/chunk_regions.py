"""Find the regions that compute a recurrence for a chunk of tokens at once.

PyTorch's models of recurrences pad query, key, value, decay and beta to whole chunks, and compute a chunk by matrix
products in place of a loop over its tokens. A region is the nodes that depend on padded tensors and one state only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from graphpass.analysis.pattern import Match, op
from graphpass.analysis.symbolic.folding import fold
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import CASTS, NO_DATA, SOURCES
from graphpass.ir.values import INTEGERS, REALS

#: Zeros that PyTorch's decomposed padding concatenates.
_ZEROS = op.Broadcast(0.0, ...)

#: Rank of a state, ``[batch, heads, keys, values]``.
_RANK = 4


@dataclass(frozen=True)
class Chunk:
    """A region that depends on padded tensors and a state.

    Attributes:
        entries: Pad, or Concat with zeros, of each tensor with an entry per token.
        past: The state before the chunk.
        present: The state after the chunk.
        outputs: Candidate results, in order: each is a value that all uses outside of the region depend on, except
            uses of ``present``.
    """

    entries: tuple[Node, ...]
    past: Value
    present: Value
    outputs: tuple[Value, ...]


def find_chunks(graph: Graph) -> Iterator[Chunk]:
    """Yield the regions between padded tensors and a new state of rank 4."""
    regions = _Regions(graph)
    for node in graph.of_op("Assign", "Result"):
        present = graph.look_through(node.source(), CASTS)
        region = regions.of(present)
        if present.rank == _RANK and region is not None and region.pads and len(region.pasts) == 1:
            yield Chunk(tuple(region.pads), region.pasts[0], present, tuple(regions.cuts(region, present)))


@dataclass
class _Region:
    """Nodes that depend on the same tensors; it grows while the graph is traversed."""

    pads: list[Node] = field(default_factory=list)
    pasts: list[Value] = field(default_factory=list)
    nodes: set[int] = field(default_factory=set)

    def take(self, other: _Region) -> None:
        self.pads += other.pads
        self.pasts += other.pasts
        self.nodes |= other.nodes


class _Regions:
    """The regions of nodes; a node that also depends on other tensors is in none."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._regions: dict[int, _Region] = {}
        self._outside: set[int] = set()
        for node in graph.nodes:
            region = self._started(node)
            if region is None and node.op not in NO_DATA and node.op not in {"Assign", "Result"}:
                region = self._joined(node)
            if region is not None:
                self._regions[node.index] = region
                region.nodes.add(node.index)

    def of(self, value: Value) -> _Region | None:
        """Return the region of a value; ``None`` if it is in none."""
        return self._regions.get(value.node)

    def _started(self, node: Node) -> _Region | None:
        if node.op in SOURCES:
            if node.outputs[0].rank == _RANK and node.outputs[0].element_type in REALS:
                return _Region(pasts=[node.outputs[0]])
            self._outside.add(node.index)
        elif self._is_entry(node):
            return _Region(pads=[node])
        elif node.op == "Gather" and node.source(1).node in self._outside:
            # Beam search reorders a state.
            region = self.of(node.source())
            if region is not None and region.pasts == [node.source()]:
                region.pasts[:] = [node.outputs[0]]
                return region
        return None

    def _is_entry(self, node: Node) -> bool:
        """Return whether ``node`` pads by a number that is computed, not constant."""
        graph = self._graph
        if node.op == "Concat" and len(node.inputs) == 2:
            zeros = graph.producer(node.source(1))
            amounts = [zeros.source(1)] if isinstance(_ZEROS.match(graph, zeros), Match) else []
        else:
            # OpenVINO's Pad has one input per side.
            sides = node.inputs[1:3] if node.op == "Pad" else ()
            amounts = [value for value in sides if value is not None and value.element_type in INTEGERS]
        follows = any(graph.producer(graph.look_through(value, CASTS)).op != "Constant" for value in amounts)
        return follows and node.source().element_type in REALS

    def _joined(self, node: Node) -> _Region | None:
        sources = [value.node for value in node.sources]
        if any(source in self._outside for source in sources):
            self._outside.add(node.index)
            return None
        joined = list(
            {id(self._regions[source]): self._regions[source] for source in sources if source in self._regions}.values()
        )
        if not joined:
            return None
        joined.sort(key=lambda region: len(region.nodes))
        kept = joined.pop()
        for other in joined:
            kept.take(other)
            self._regions.update(dict.fromkeys(other.nodes, kept))
        return kept

    def cuts(self, region: _Region, present: Value) -> Iterator[Value]:
        """Yield values that all uses outside of ``region``, except of ``present``, depend on."""
        graph = self._graph
        ends = [
            value
            for index in sorted(region.nodes)
            for value in graph.nodes[index].outputs
            if value != present and any(self._leaves(region, use.node) for use in graph.uses(value))
        ]
        within = {
            node.index for node in graph.backward(ends, lambda node: node.inputs if node.index in region.nodes else ())
        }
        open_uses: dict[Value, int] = {}
        for index in sorted(within & region.nodes):
            node = graph.nodes[index]
            for value in dict.fromkeys(value for value in node.inputs if value in open_uses):
                open_uses[value] -= 1
                if not open_uses[value]:
                    del open_uses[value]
            for value in node.outputs:
                readers = {use.node.index for use in graph.uses(value)}
                count = len(readers & within & region.nodes) + any(
                    self._leaves(region, graph.nodes[reader]) for reader in readers
                )
                if count:
                    open_uses[value] = count
            if len(open_uses) == 1 and next(iter(open_uses)).node == index:
                yield node.outputs[0]

    def _leaves(self, region: _Region, reader: Node) -> bool:
        return reader.index not in region.nodes and reader.op not in NO_DATA


@dataclass(frozen=True)
class Added:
    """A padded tensor times a constant, and the operator that adds it to the result."""

    pad: Node
    factor: Value
    add: Node


def skips(graph: Graph, chunk: Chunk) -> Iterator[Added]:
    """Yield padded tensors whose only use is a product that is added to the result.

    Args:
        graph: The graph.
        chunk: The region; each of its candidate results is checked.
    """
    for output in chunk.outputs:
        add = graph.producer(output)
        for operand in add.inputs if add.op == "Add" else ():
            product = None if operand is None else graph.producer(operand)
            if product is None or product.op != "Multiply":
                continue
            for port in (0, 1):
                pad, factor = graph.producer(product.source(port)), product.source(1 - port)
                is_only_use = pad in chunk.entries and len(graph.uses(pad.outputs[0])) == 1
                if is_only_use and fold(graph, factor) is not None:
                    yield Added(pad, factor, add)
