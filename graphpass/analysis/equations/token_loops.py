"""Find loops over the tokens of a step, and evaluate them on random inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy

from graphpass.analysis.equations.evaluation import Evaluation, f32_shape
from graphpass.analysis.symbolic.equal_sizes import as_dimension
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.analysis.symbolic.rounding import Array
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, LAYOUT, LOOP_ENTRIES, LOOP_EXITS
from graphpass.ir.values import REALS

#: Batch size of evaluated steps.
BATCH = 2

#: Producers of initial states that are not replaced by random tensors.
_FILLED = frozenset({"Constant", "ConstantOfShape"})

_ENTRIES = LOOP_ENTRIES | {"Iteration"}


@dataclass(frozen=True)
class TokenLoop:
    """A Loop or Scan in a graph with inlined bodies, see `graphpass.ir.bodies`.

    Attributes:
        graph: The graph.
        entries: Its Carried, Sliced and Iteration nodes, except the node that carries a Loop's condition.
        exits: Its Final and Stacked nodes.
        inside: Indices of nodes that depend on the iteration.
        sources: Activations outside of the loop that it reads.
        is_nested: Whether it is in the body of another operator.
    """

    graph: Graph
    entries: tuple[Node, ...]
    exits: tuple[Node, ...]
    inside: frozenset[int]
    sources: tuple[Value, ...]
    is_nested: bool

    @property
    def called(self) -> str:
        """Return operator and name of the loop."""
        return self.exits[0].called


def find_loops(model: Model) -> Iterator[TokenLoop]:
    """Yield the loops of ``model`` that have outputs, in the order of their first outputs."""
    graph, outside = inlined(model).graph, {value.name for node in model.graph.nodes for value in node.outputs}
    entries: dict[str, list[Node]] = {}
    exits: dict[str, list[Node]] = {}
    for node in graph.of_op(*_ENTRIES):
        entries.setdefault(node.called, []).append(node)
    for node in graph.of_op(*LOOP_EXITS):
        exits.setdefault(node.called, []).append(node)

    def within(node: Node) -> tuple[Value | None, ...]:
        return () if node.outputs and node.outputs[0].name in outside else node.inputs

    for name, ends in exits.items():
        started = entries.get(name, [])
        ended = {node.index for node in ends}
        first = [value for node in started for value in node.outputs]
        reached = graph.forward(first, lambda use, ended=ended: () if use.node.index in ended else use.node.outputs)  # type: ignore[misc]
        inside = {node.index for node in started} | {use.node.index for use in reached} - ended
        conditions = {value for node in started for value in node.attributes.get("conditions", ())[1:2]}
        kept = tuple(node for node in started if node.outputs[0] not in conditions)
        # Initial values of carried tensors are not among the sources.
        starts = {node.index for node in started}
        read = [value for index in sorted(inside - starts) for value in graph.nodes[index].inputs]
        upstream = graph.backward(read, lambda node, starts=starts: () if node.index in starts else within(node))  # type: ignore[misc]
        read += [value for node in upstream if node.index not in starts for value in within(node)]
        outer = {
            value for value in read if value is not None and value.name in outside and _is_activation(graph, value)
        }
        sources = sorted(outer, key=lambda value: (value.node, value.port))
        sliced = [node.source() for node in kept if node.op == "Sliced"]
        nested = ends[0].outputs[0].name not in outside
        yield TokenLoop(graph, kept, tuple(ends), frozenset(inside), tuple(dict.fromkeys([*sliced, *sources])), nested)


def _is_activation(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` may be an activation, which excludes integers and constants."""
    return value.element_type in REALS | {"dynamic"} and graph.producer(value).op != "Constant"


@dataclass(frozen=True)
class LoopRun:
    """Tensors of one evaluation of a loop.

    Attributes:
        length: Number of iterations.
        sources: Tensors from outside of the loop.
        starts: Initial value of each carried tensor.
        results: Output of each Final or Stacked node.
        tokens: The evaluation of each iteration.
    """

    length: int
    sources: Mapping[Value, Array]
    starts: Mapping[Value, Array]
    results: Mapping[Value, Array]
    tokens: tuple[Evaluation, ...]


class LoopNumbers:
    """Evaluations of one loop on random inputs."""

    def __init__(self, loop: TokenLoop, sizes: Sizes) -> None:
        """Derive the number of iterations from sizes.

        Raises:
            MissError: The number is not the size of an axis, or the loop may end early or run backward.
        """
        self.loop, self._sizes = loop, sizes
        self._turns = self._count()

    @property
    def fixed_length(self) -> int | None:
        """Return the number of iterations if it is the same in all steps."""
        count = self._turns.as_number
        return count if isinstance(count, int) else None

    def _count(self) -> Expr:
        graph, count = self.loop.graph, None
        for node in self.loop.entries:
            if node.op == "Iteration":
                content = self._sizes.content(node.attributes.get("count"))
                count = content[0] if content else None
                if ends_early(graph, node):
                    raise MissError(node, "the loop may end before its last iteration")
            elif node.op == "Sliced" and count is None:
                shape = self._sizes.shape(node.inputs[0])
                count = None if shape is None else shape[node.attributes["axis"]]
        for node in (*self.loop.entries, *self.loop.exits):
            if not node.attributes.get("in_order", True):
                raise MissError(node, "the loop does not process the tokens in order")
            if node.op == "Final" and len(node.inputs) == 1:
                raise MissError(node, "the loop returns a tensor that it does not carry")
        if count is None or (count.op != "number" and as_dimension(count) is None):
            raise MissError(self.loop.exits[0], "the number of iterations is not a size of a tensor")
        return count

    def run(self, length: int) -> LoopRun:
        """Evaluate the loop over ``length`` tokens.

        Returns:
            Random sources and starts, and the results computed from them.

        Raises:
            MissError: A shape is unknown, or an operator is not supported.
        """
        random = numpy.random.default_rng(length)

        def number(dimension: Expr) -> int:
            return length if dimension is self._turns else BATCH

        loop = self.loop
        # All sliced axes have this length, also if their dimensions have different names.
        sliced = {(node.source(), node.attributes["axis"]) for node in loop.entries if node.op == "Sliced"}

        def drawn(value: Value) -> Array:
            shape = f32_shape(self._sizes, loop.graph.producer(value), value, number)
            sizes = [length if (value, axis) in sliced else size for axis, size in enumerate(shape)]
            return random.uniform(0.1, 1.0, sizes).astype(numpy.float32)

        sources = {value: drawn(value) for value in loop.sources}
        before = Evaluation(loop.graph, self._sizes, number, sources)

        def start(value: Value) -> Array:
            is_filled = loop.graph.producer(loop.graph.look_through(value, LAYOUT)).op in _FILLED
            return before.of(value) if is_filled else drawn(value)

        carried = {node.outputs[0]: start(node.source()) for node in loop.entries if node.op == "Carried"}
        starts, tokens = dict(carried), []
        stacked: dict[Value, list[Array]] = {node.outputs[0]: [] for node in loop.exits if node.op == "Stacked"}
        for turn in range(length):
            values = sources | carried
            for node in loop.entries:
                if node.op == "Iteration":
                    values[node.outputs[0]] = numpy.array(turn, numpy.int64)
                elif node.op == "Sliced":
                    place = [turn] if node.attributes["keeps_axis"] else turn
                    values[node.outputs[0]] = sources[node.source()].take(place, node.attributes["axis"])
            tokens.append(Evaluation(loop.graph, self._sizes, number, values))
            for node in loop.exits:
                if node.op == "Stacked":
                    stacked[node.outputs[0]].append(tokens[-1].of(node.source()))
                else:
                    carried[node.source(1)] = tokens[-1].of(node.source())
        results = {node.outputs[0]: carried[node.source(1)] for node in loop.exits if node.op == "Final"}
        results |= {
            node.outputs[0]: (numpy.concatenate if node.attributes["keeps_axis"] else numpy.stack)(
                stacked[node.outputs[0]], node.attributes["axis"]
            )
            for node in loop.exits
            if node.op == "Stacked"
        }
        return LoopRun(length, sources, starts, results, tuple(tokens))


def ends_early(graph: Graph, iteration: Node) -> bool:
    """Return whether a condition may end the Loop of ``iteration`` before the last iteration.

    Args:
        graph: A graph with inlined bodies, see `graphpass.ir.bodies`.
        iteration: The Iteration node of a Loop.
    """
    starts, goes_on, left = iteration.attributes["conditions"]

    def is_true(value: Value | None) -> bool:
        source = None if value is None else graph.look_through(value, CASTS)
        return source is None or source == goes_on or bool(fold_scalar(graph, source))

    return not is_true(starts) or left is None or not is_true(left)
