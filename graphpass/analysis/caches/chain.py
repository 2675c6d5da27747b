"""Find the values that are on every path from tokens to logits."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.inputs import TOKEN_INPUTS, token_input
from graphpass.ir.operators import SHAPE_READERS
from graphpass.ir.values import REALS, fixed_size, known_elements

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from graphpass.ir.cache import Cache
    from graphpass.ir.graph import Graph, Node, Use, Value
    from graphpass.ir.model import Model

#: Operators that return the norm of a sum and the sum: output index of the sum, input indices of the norm's weights.
SKIP_NORMS = {"SkipSimplifiedLayerNormalization": (3, (2,)), "SkipLayerNormalization": (3, (2, 3))}

#: Largest number of elements of constants that are not weights, but belong to the structure of a layer.
LARGEST_PARAMETER = 8


@dataclass(frozen=True, eq=False)
class LayerChain:
    """The values on every path from tokens to logits, at which layers can be separated.

    Attributes:
        model: The model.
        tokens: The input of token ids, or of their embeddings.
        logits: The Result of the logits.
        caches: The caches.
        deep: Indices of nodes on paths from tokens to logits, without paths through shapes.
        values: The values on every path, in execution order.
        cuts: The elements of ``values`` that do not separate the uses of a cache.
        pieces: The parts of the graph between the cuts.
    """

    model: Model
    tokens: Value
    logits: Node
    caches: tuple[Cache, ...]
    deep: set[int]
    values: tuple[Value, ...]
    cuts: tuple[Value, ...]
    pieces: Pieces

    @property
    def graph(self) -> Graph:
        """Return the view of the model."""
        return self.model.graph

    @cached_property
    def weights(self) -> dict[int, int]:
        """Return the first piece that reads each weight, by the node of the weight."""
        weights = filter(is_weight, self.graph.of_op("Constant"))
        read = ((node.index, self.pieces.readers(node.outputs[0])) for node in weights)
        return {index: min(pieces) for index, pieces in read if pieces}

    @cached_property
    def homes(self) -> dict[str, int]:
        """Return the first piece that reads or writes each cache, by the cache's name."""
        touched = ((cache.name, self.pieces.touched(cache)) for cache in self.caches)
        return {name: min(pieces) for name, pieces in touched if pieces}


class Pieces:
    """The parts of a graph between cuts, numbered from 0 in execution order."""

    def __init__(self, graph: Graph, deep: set[int], cuts: Sequence[Value]) -> None:
        """Split the nodes ``deep``, see `computed_between`, at ``cuts``."""
        self._graph, self._deep = graph, deep
        self._ends = [cut.node for cut in cuts]
        self._sums = {cut.node for cut in cuts if is_sum(graph, cut)}

    def readers(self, value: Value) -> set[int]:
        """Return the pieces that read elements of ``value``, also through nodes outside of ``deep``."""

        def onward(use: Use) -> Iterable[Value]:
            return () if use.node.index in self._deep or use.node.op in SHAPE_READERS else use.node.outputs

        return {
            bisect_left(self._ends, use.node.index)
            + (use.node.index in self._sums and is_after_sum(use.node, use.port))
            for use in self._graph.forward([value], onward)
            if _reads(use, self._deep)
        }

    def touched(self, cache: Cache) -> set[int]:
        """Return the pieces that read ``cache`` or compute its present."""
        graph = self._graph
        read, write = graph.reads.get(cache.read), graph.writes.get(cache.write)
        indices = self.readers(read.outputs[0]) if read is not None else set()
        if write is None:
            return indices

        def back(node: Node) -> Iterable[Value | None]:
            return () if node.index in self._deep or node.op in SHAPE_READERS else node.inputs

        makers = {node.index for node in graph.backward(write.inputs, back)} & self._deep
        # A cut belongs to the pieces before and after it.
        inner = makers.difference(self._ends)
        indices |= {bisect_left(self._ends, index) for index in inner}
        return indices or {bisect_left(self._ends, index) + 1 for index in makers}


def find_chain(model: Model) -> LayerChain | str:
    """Return the values on every path from tokens to logits, or the reason without any."""
    graph = model.graph
    inventory = model.analysis(analyze_caches)
    tokens = token_input(graph)
    if tokens is None:
        return f"it has no input called {' or '.join(TOKEN_INPUTS)}"
    presents = {cache.write for cache in inventory.caches}
    results = [node for node in graph.of_op("Result") if node.name not in presents]
    logits = results[0] if len(results) == 1 else next((node for node in results if node.name == "logits"), None)
    if logits is None:
        return "no output is called logits"
    deep = computed_between(graph, tokens, logits)
    values = _passed(graph, deep, logits)
    if not values:
        return "no value is on all paths from the tokens to the logits"
    between = Pieces(graph, deep, values)
    touched = (between.touched(cache) for cache in inventory.caches)
    inside = {place for pieces in touched if pieces for place in range(min(pieces), max(pieces))}
    cuts = tuple(value for place, value in enumerate(values) if place not in inside)
    return LayerChain(model, tokens, logits, inventory.caches, deep, tuple(values), cuts, Pieces(graph, deep, cuts))


def is_weight(node: Node) -> bool:
    """Return whether a Constant has the size of a weight."""
    return known_elements(node.outputs[0]) > LARGEST_PARAMETER


def is_sum(graph: Graph, cut: Value) -> bool:
    """Return whether ``cut`` is the sum that an operator of `SKIP_NORMS` returns.

    Args:
        graph: The graph.
        cut: A value on every path from tokens to logits.
    """
    return SKIP_NORMS.get(graph.producer(cut).op, (-1, ()))[0] == cut.port


def is_after_sum(node: Node, port: int) -> bool:
    """Return whether input ``port`` is a weight of the norm after a sum.

    Args:
        node: The operator; those outside `SKIP_NORMS` have no such weights.
        port: Index of one of its inputs.
    """
    return port in SKIP_NORMS.get(node.op, (-1, ()))[1]


def computed_between(graph: Graph, start: Value, end: Node) -> set[int]:
    """Return the nodes on paths from ``start`` to ``end``, without paths through shapes.

    Args:
        graph: The graph.
        start: Value upstream, for example the token ids.
        end: Node downstream, for example the Result of the logits.

    Returns:
        Indices of the nodes, that of ``end`` included; empty without a path.
    """

    def onward(use: Use) -> Iterable[Value]:
        return () if use.node.op in SHAPE_READERS else use.node.outputs

    def back(node: Node) -> Iterable[Value | None]:
        return () if node.op in SHAPE_READERS else node.inputs

    after = {use.node.index for use in graph.forward([start], onward) if use.node.op not in SHAPE_READERS}
    return after & {end.index, *(node.index for node in graph.backward(end.inputs, back))}


def _passed(graph: Graph, deep: set[int], end: Node) -> list[Value]:
    """Return the real values ``[batch, length, n]`` on every path through ``deep`` nodes."""
    passed = []
    reach = -1
    for index in sorted(deep - {end.index}):
        last = {
            value: max(readers)
            for value in graph.nodes[index].outputs
            if (readers := [use.node.index for use in graph.uses(value) if _reads(use, deep)])
        }
        total, _ = SKIP_NORMS.get(graph.nodes[index].op, (0, ()))
        # Norm and sum count as one value, the sum.
        values = (
            [value for value in last if value.port == total] if total in {value.port for value in last} else list(last)
        )
        if len(values) == 1 and reach <= index:
            (value,) = values
            if value.rank == 3 and value.element_type in REALS and fixed_size(value, -1) is not None:
                passed.append(value)
        reach = max(reach, *last.values(), -1)
    return passed


def _reads(use: Use, deep: set[int]) -> bool:
    return use.node.index in deep and use.node.op not in SHAPE_READERS
