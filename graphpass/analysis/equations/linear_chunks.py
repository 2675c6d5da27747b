"""Recognize linear attention that is computed for a chunk of tokens at once.

Some exports contain a single chunk and fail for longer prompts. A region matches if its results equal those of the
equation for several lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy

from graphpass.analysis.equations.chunk_regions import Chunk, skips
from graphpass.analysis.equations.evaluation import Evaluation, f32_shape
from graphpass.analysis.equations.linear_equation import Equation, Factor, LinearAttention, Role, Sample, Skip
from graphpass.analysis.symbolic.equal_sizes import dimensions, is_linear, offset
from graphpass.analysis.symbolic.expressions import Expr
from graphpass.analysis.symbolic.folding import fold
from graphpass.analysis.symbolic.rounding import Array
from graphpass.analysis.symbolic.sizes import Sizes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError

_BATCH = 2

#: Numbers of tokens of the runs; ``_MANY`` is added if the padded size depends on the number of tokens.
_LENGTHS, _MANY = (7, 1), 150

#: Standard deviation of random inputs; decays and their inverses are small then.
_SPREAD = 0.3

#: Number of vectors (query, key, value), and most further tensors (decay, beta).
_VECTORS, _SCALARS = 3, 2


def read_chunk(graph: Graph, sizes: Sizes, chunk: Chunk) -> LinearAttention:
    """Return the linear attention that ``chunk`` computes.

    Args:
        graph: The graph.
        sizes: Sizes of its tensors.
        chunk: The region. Its padded tensors are query, key, value, and optional decay and beta, in any order.

    Raises:
        MissError: The chunk computes another function, or an operator is not supported.
    """
    return _Shown(graph, sizes, chunk).read()


class _Shown:
    """A comparison of region and equation on random inputs."""

    def __init__(self, graph: Graph, sizes: Sizes, chunk: Chunk) -> None:
        self._graph, self._sizes, self._chunk = graph, sizes, chunk
        self._node = graph.producer(chunk.present)
        self._skip = next(skips(graph, chunk), None)
        self._tokens = {pad.source(): self._padded_axis(pad) for pad in chunk.entries}
        self._sources = [pad.source() for pad in chunk.entries if self._skip is None or pad != self._skip.pad]
        if not _VECTORS <= len(self._sources) <= _VECTORS + _SCALARS:
            raise MissError(self._node, f"it depends on {len(self._sources)} padded tensors, expected 3 to 5")
        self._lengths: list[int] = []
        self._drawn: list[dict[Value, Array]] = []
        self._runs: list[Evaluation] = []

        def run(length: int) -> None:
            drawn = self._draw(length)
            self._lengths.append(length)
            self._drawn.append(drawn)
            self._runs.append(Evaluation(graph, sizes, self._numbers(length), drawn))

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
        """Return the recurrence, as `read_chunk`.

        Raises:
            MissError: The results of the chunk differ from linear attention.
        """
        chunk, result = self._chunk, self._result()
        runs = [
            Sample(
                length, drawn[chunk.past], run.of(chunk.present), run.of(result) - self._skipped(drawn, run.of(result))
            )
            for length, drawn, run in zip(self._lengths, self._drawn, self._runs, strict=True)
        ]
        values = chunk.past, chunk.present, result
        for equation in self._equations():
            linear = equation.found(runs, values, self._graph.producer(result))
            if linear is not None:
                skip = None if self._skip is None else Skip(self._skip.pad.source(), self._skip.factor)
                return replace(linear, skip=skip, chunk=self._size)
        raise MissError(self._node, "the results of the chunk differ from linear attention")

    def _skipped(self, drawn: Mapping[Value, Array], result: Array) -> Array:
        """Return the product that is added to the result, or zeros.

        Raises:
            MissError: The product has another size than the result.
        """
        if self._skip is None:
            return numpy.zeros_like(result)
        product: Array = drawn[self._skip.pad.source()] * fold(self._graph, self._skip.factor)
        if product.size != result.size:
            raise MissError(self._skip.pad, "its product with a constant has another size than the result")
        added: Array = product.reshape(result.shape)
        return added

    def _padded_axis(self, pad: Node) -> int:
        before, after = (self._sizes.shape(value) for value in (pad.source(), pad.outputs[0]))
        if before is None or after is None:
            raise MissError(pad, "its shape is not known")
        changed = [axis for axis, (old, new) in enumerate(zip(before, after, strict=True)) if old is not new]
        if len(changed) != 1:
            raise MissError(pad, f"it pads {len(changed)} axes, expected the axis of tokens only")
        return changed[0]

    def _numbers(self, length: int) -> Callable[[Expr], int]:
        """Return a function from dimension to size for ``length`` tokens.

        Raises:
            MissError: The number of tokens is not linear in one dimension.
        """
        source = self._sources[0]
        shape = self._sizes.shape(source)
        assert shape is not None
        tokens = shape[self._tokens[source]]
        if not is_linear(tokens) or len(dimensions(tokens)) != 1:
            raise MissError(
                self._graph.producer(source), f"the number of tokens of {source.name} is not linear in one dimension"
            )
        ((turns, factor),) = dimensions(tokens)
        count = (length - offset(tokens)) // factor
        return lambda dimension: count if dimension is turns else _BATCH

    def _draw(self, length: int) -> dict[Value, Array]:
        random, number = numpy.random.default_rng(length), self._numbers(length)
        drawn = {}
        for value, tokens in (*self._tokens.items(), (self._chunk.past, None)):
            shape = f32_shape(self._sizes, self._graph.producer(value), value, number)
            sizes = [length if axis == tokens else size for axis, size in enumerate(shape)]
            drawn[value] = (random.standard_normal(sizes) * _SPREAD).astype(numpy.float32)
        return drawn

    def _result(self) -> Value:
        """Return the first output with one element per token, head and channel.

        Raises:
            MissError: No output has these sizes.
        """
        heads, *sides = self._drawn[0][self._chunk.past].shape[1:]
        first = max(pad.index for pad in self._chunk.entries) if self._skip is None else self._skip.add.index
        for value in self._chunk.outputs:
            counts = [run.of(value).size for run in self._runs] if value.node > first else []
            if any(counts == [_BATCH * length * heads * side for length in self._lengths] for side in sides):
                return value
        raise MissError(self._node, "no output of the chunk has one element per token, head and channel")

    def _equations(self) -> Iterator[Equation]:
        """Yield an equation for each assignment of tensors to terms that their shapes allow."""
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
        """Yield a factor for each possible axis order: batch, token, head, element."""
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
    """Yield the assignments of the remaining tensors to decay and beta."""
    for pair in permutations([*rest, *[None] * (_SCALARS - len(rest))]):
        yield pair[0], pair[1]


def _exponential(decay: Factor) -> Factor:
    runs = tuple(numpy.exp(run) for run in decay.runs)
    return Factor(replace(decay.role, functions=("Exp",)), runs)
