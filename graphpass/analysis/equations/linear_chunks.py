"""Find linear attention that is computed for a chunk of tokens at once.

PyTorch's models pad query, key, value, decay and beta to whole chunks, and compute a chunk by products of matrices, in
place of a loop over its tokens. An export holds one chunk: longer prompts fail. All that follows from padded tensors
and one state is a region; its results, computed for several lengths, are those of the equation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product

import numpy

from graphpass.analysis.equations.computable import Computable
from graphpass.analysis.equations.evaluation import Evaluation
from graphpass.analysis.equations.linear_equation import Equation, Factor, LinearAttention, Role, Run, Skip
from graphpass.analysis.symbolic.equal_sizes import dimensions, is_linear, offset
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.folding import fold
from graphpass.analysis.symbolic.rounding import Array
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.operators import CASTS, NO_DATA, SOURCES
from graphpass.ir.values import INTEGERS, REALS

_BATCH = 2

#: Lengths of the runs: several tokens, and one; and many, if they are not padded to one chunk.
_LENGTHS, _MANY = (7, 1), 150

#: Standard deviation of what is drawn: decays and their inverses stay small.
_SPREAD = 0.3

#: Query, key and value, and tensors besides: decay and beta.
_VECTORS, _SCALARS = 3, 2

#: Axes of a state: batch, heads, keys, values.
_RANK = 4


@dataclass(frozen=True)
class Chunk:
    """A region that follows from padded tensors and a state.

    Attributes:
        entries: Pad of each tensor of all tokens.
        past: The state that it starts from.
        present: The state that it leaves.
        outputs: Values through which all else of it is read, the first one first.
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
    """Nodes that follow from the same tensors; it grows while the graph is read."""

    pads: list[Node] = field(default_factory=list)
    pasts: list[Value] = field(default_factory=list)
    nodes: set[int] = field(default_factory=set)

    def take(self, other: _Region) -> None:
        self.pads += other.pads
        self.pasts += other.pasts
        self.nodes |= other.nodes


class _Regions:
    """Assigns nodes to regions; a node that also reads other tensors is in none."""

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
        """Return the region of a value."""
        return self._regions.get(value.node)

    def _started(self, node: Node) -> _Region | None:
        if node.op in SOURCES:
            if node.outputs[0].rank == _RANK and node.outputs[0].element_type in REALS:
                return _Region(pasts=[node.outputs[0]])
            self._outside.add(node.index)
        elif node.op == "Pad" and self._is_entry(node):
            return _Region(pads=[node])
        elif node.op == "Gather" and node.source(1).node in self._outside:
            # Beams reorder a state.
            region = self.of(node.source())
            if region is not None and region.pasts == [node.source()]:
                region.pasts[:] = [node.outputs[0]]
                return region
        return None

    def _is_entry(self, pad: Node) -> bool:
        """Return whether ``pad`` adds a number of places that follows from sizes."""
        graph = self._graph
        # OpenVINO has an input for each side.
        amounts = [value for value in pad.inputs[1:3] if value is not None and value.element_type in INTEGERS]
        follows = any(graph.producer(graph.look_through(value, CASTS)).op != "Constant" for value in amounts)
        return pad.source().element_type in REALS and follows

    def _joined(self, node: Node) -> _Region | None:
        sources = [value.node for value in node.inputs if value is not None]
        if any(source in self._outside for source in sources):
            self._outside.add(node.index)
            return None
        found = list(
            {id(self._regions[source]): self._regions[source] for source in sources if source in self._regions}.values()
        )
        if not found:
            return None
        found.sort(key=lambda region: len(region.nodes))
        kept = found.pop()
        for other in found:
            kept.take(other)
            self._regions.update(dict.fromkeys(other.nodes, kept))
        return kept

    def cuts(self, region: _Region, present: Value) -> Iterator[Value]:
        """Yield values through which all goes that others read besides ``present``."""
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


def read_chunk(graph: Graph, sizes: Sizes, chunk: Chunk) -> LinearAttention:
    """Return the equation that has the numbers of ``chunk``.

    Raises:
        MissError: It is not that of linear attention, or an operator is not computed.
    """
    return _Shown(graph, sizes, chunk).read()


@dataclass(frozen=True)
class Added:
    """A padded tensor times a constant, and the operator that adds it to the result."""

    pad: Node
    factor: Value
    add: Node


def skips(graph: Graph, chunk: Chunk) -> Iterator[Added]:
    """Yield tensors that reach the result by a sum alone."""
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


class _Shown:
    """Computes region and equation side by side."""

    def __init__(self, graph: Graph, sizes: Sizes, chunk: Chunk) -> None:
        self._graph, self._sizes, self._chunk = graph, sizes, chunk
        self._node = graph.producer(chunk.present)
        self._skip = next(skips(graph, chunk), None)
        self._tokens = {pad.source(): self._padded_axis(pad) for pad in chunk.entries}
        self._sources = [pad.source() for pad in chunk.entries if self._skip is None or pad != self._skip.pad]
        if not _VECTORS <= len(self._sources) <= _VECTORS + _SCALARS:
            raise MissError(self._node, f"it follows from {len(self._sources)} tensors of all tokens")
        computable = Computable(graph)
        self._lengths: list[int] = []
        self._drawn: list[dict[Value, Array]] = []
        self._runs: list[Evaluation] = []

        def run(length: int) -> None:
            drawn = self._draw(length)
            self._lengths.append(length)
            self._drawn.append(drawn)
            self._runs.append(Evaluation(computable, sizes, self._numbers(length), drawn))

        for length in _LENGTHS:
            run(length)
        padded = {
            evaluation.of(chunk.entries[0].outputs[0]).shape[self._tokens[chunk.entries[0].source()]]
            for evaluation in self._runs
        }
        self._size = min(padded) if len(padded) == 1 else None
        if self._size is None:
            run(_MANY)

    def read(self) -> LinearAttention:
        """See `read_chunk`."""
        chunk, result = self._chunk, self._result()
        runs = [
            Run(length, drawn[chunk.past], run.of(chunk.present), run.of(result) - self._skipped(drawn, run.of(result)))
            for length, drawn, run in zip(self._lengths, self._drawn, self._runs, strict=True)
        ]
        values = chunk.past, chunk.present, result
        for equation in self._equations():
            found = equation.found(runs, values, self._graph.producer(result))
            if found is not None:
                skip = None if self._skip is None else Skip(self._skip.pad.source(), self._skip.factor)
                return replace(found, skip=skip, chunk=self._size)
        raise MissError(self._node, "the numbers of the chunk are not those of linear attention")

    def _skipped(self, drawn: Mapping[Value, Array], result: Array) -> Array:
        """Return what is added to the result."""
        if self._skip is None:
            return numpy.zeros_like(result)
        product: Array = drawn[self._skip.pad.source()] * fold(self._graph, self._skip.factor)
        if product.size != result.size:
            raise MissError(self._skip.pad, "what is added to the result is of another size")
        added: Array = product.reshape(result.shape)
        return added

    def _padded_axis(self, pad: Node) -> int:
        before, after = (self._sizes.shape(value) for value in (pad.source(), pad.outputs[0]))
        if before is None or after is None:
            raise MissError(pad, "its shape is not known")
        changed = [axis for axis, (old, new) in enumerate(zip(before, after, strict=True)) if old is not new]
        if len(changed) != 1:
            raise MissError(pad, f"it pads {len(changed)} axes, not that of the tokens")
        return changed[0]

    def _numbers(self, length: int) -> Callable[[Expr], int]:
        """Return the number of each dimension for ``length`` tokens."""
        source = self._sources[0]
        shape = self._sizes.shape(source)
        assert shape is not None
        tokens = shape[self._tokens[source]]
        if not is_linear(tokens) or len(dimensions(tokens)) != 1:
            raise MissError(self._graph.producer(source), f"the number of tokens of {source.name} is not a length")
        ((turns, factor),) = dimensions(tokens)
        count = (length - offset(tokens)) // factor
        return lambda dimension: count if dimension is turns else _BATCH

    def _draw(self, length: int) -> dict[Value, Array]:
        random, number = numpy.random.default_rng(length), self._numbers(length)
        drawn = {}
        for value, tokens in (*self._tokens.items(), (self._chunk.past, None)):
            shape = self._sizes.shape(value)
            if shape is None or value.element_type != "f32" or not all(map(is_linear, shape)):
                raise MissError(self._graph.producer(value), f"type or shape of {value.name} is not known as f32")
            sizes = [offset(size) + sum(number(expr) * factor for expr, factor in dimensions(size)) for size in shape]
            sizes = [length if axis == tokens else size for axis, size in enumerate(sizes)]
            drawn[value] = (random.standard_normal(sizes) * _SPREAD).astype(numpy.float32)
        return drawn

    def _result(self) -> Value:
        """Return the first output of one number a token, head and element."""
        heads, *sides = self._drawn[0][self._chunk.past].shape[1:]
        first = max(pad.index for pad in self._chunk.entries) if self._skip is None else self._skip.add.index
        for value in self._chunk.outputs:
            found = [run.of(value).size for run in self._runs] if value.node > first else []
            if any(found == [_BATCH * length * heads * side for length in self._lengths] for side in sides):
                return value
        raise MissError(self._node, "no output of the chunk has a number for each token")

    def _equations(self) -> Iterator[Equation]:
        """Yield the equations in which each tensor has a place that its shape allows."""
        for factors in product(*map(self._factors, self._sources)):
            for query, key, value, *rest in permutations(factors):
                if min(query.role.width, key.role.width, value.role.width) > 1 and len(rest) <= _SCALARS:
                    for decay, beta in _shared_out(rest):
                        if beta is not None and beta.role.width > 1:
                            continue
                        betas = () if beta is None else (beta,)
                        logged = None if decay is None else _exponential(decay)
                        yield Equation(query, key, value, (), logged, betas, corrects=beta is not None)

    def _factors(self, source: Value) -> Iterator[Factor]:
        """Yield the orders in which a tensor has batch, token, head and element."""
        tokens = self._tokens[source]
        heads = self._drawn[0][self._chunk.past].shape[1]
        rest = [axis for axis in range(1, len(self._drawn[0][source].shape)) if axis != tokens]
        for order in permutations(rest):
            axes = (0, tokens, *order)
            runs = tuple(drawn[source].transpose(axes) for drawn in self._drawn)
            if len(order) in {1, 2} and runs[0].shape[2] == heads:
                lined = tuple(run.reshape(*run.shape[:3], -1) for run in runs)
                yield Factor(Role(source, axes, (), lined[0].shape[3]), lined)


def _shared_out(rest: Sequence[Factor]) -> Iterator[tuple[Factor | None, Factor | None]]:
    """Yield the ways in which the tensors besides the vectors are decay and beta."""
    for pair in permutations([*rest, *[None] * (_SCALARS - len(rest))]):
        yield pair[0], pair[1]


def _exponential(decay: Factor) -> Factor:
    runs = tuple(numpy.exp(run) for run in decay.runs)
    return Factor(replace(decay.role, functions=("Exp",)), runs)
