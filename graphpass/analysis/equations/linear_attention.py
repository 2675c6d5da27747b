"""Recognize loops and chunks that compute linear attention.

Operators in a loop determine the candidate roles of each tensor. The role and the order of axes are those for which
the equation reproduces the loop's values for several lengths.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy

from graphpass.analysis.equations.chunk_regions import find_chunks
from graphpass.analysis.equations.equal_chunks import region_form
from graphpass.analysis.equations.linear_chunks import read_chunk
from graphpass.analysis.equations.linear_equation import Equation, Factor, LinearAttention, Role, Sample
from graphpass.analysis.equations.token_loops import LoopNumbers, TokenLoop, find_loops
from graphpass.analysis.symbolic.arrays import computed
from graphpass.analysis.symbolic.rounding import Array
from graphpass.analysis.symbolic.sizes import Sizes, infer_sizes
from graphpass.ir.bodies import inlined
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.model import Model
from graphpass.ir.operators import CASTS, GATHERS, MOVES, SLICES

#: Numbers of tokens of the runs.
_LENGTHS = (3, 1, 4)

#: Operators that are linear in each of two operands.
_PRODUCTS = frozenset({"Einsum", "MatMul", "Multiply"})

#: Elementwise operators that a role may include.
_FUNCTIONS = frozenset({"Exp", "Negative", "Sigmoid", "SoftPlus"})

#: Operators with nonnegative results.
_POSITIVE = frozenset({"Exp", "Sigmoid", "SoftPlus"})

#: Operators between a tensor of all tokens and its entry for one token.
_PICKS = MOVES | GATHERS | SLICES | {"Sliced"}


def find_linear_attention(model: Model) -> dict[str, LinearAttention | Miss]:
    """Return linear attention, or the miss, of loops and chunks by name, for `Model.analysis`.

    Only loops and chunks with a state of rank 4 are included.
    """
    recurrences = dict(model.analysis(find_chunked_attention))
    for loop in find_loops(model):
        states = [node for node in loop.exits if node.op == "Final" and node.outputs[0].rank in {4, None}]
        if states and loop.is_nested:
            recurrences[loop.called] = Miss(states[0], "the loop is in the body of another operator")
        elif states:
            recurrences[loop.called] = _read(model, loop, states)
    return recurrences


def find_chunked_attention(model: Model) -> dict[str, LinearAttention | Miss]:
    """Return linear attention, or the miss, of chunks by name, for `Model.analysis`."""
    graph, sizes = model.graph, model.analysis(infer_sizes)
    recurrences: dict[str, LinearAttention | Miss] = {}
    known: dict[Hashable, tuple[tuple[Value, ...], LinearAttention]] = {}
    for chunk in find_chunks(graph):
        form = region_form(graph, sizes, chunk)
        name = graph.producer(chunk.present).called
        if form is not None and form.key in known:
            values, layer = known[form.key]
            recurrences[name] = layer.moved(dict(zip(values, form.values, strict=True)))
            continue
        recurrences[name] = recurrence = or_miss(read_chunk)(graph, sizes, chunk)
        if form is not None and isinstance(recurrence, LinearAttention):
            known[form.key] = form.values, recurrence
    return recurrences


@dataclass(frozen=True)
class _Terms:
    """Factors of the equation, by their use in the loop.

    Attributes:
        state: The Final node of the state.
        result: The Final or Stacked node of the results.
        decays: Factors of the state.
        added: Factors of the term that is added to the state.
        corrected: Factors of the value before the correction; ``None`` without a correction.
        read: Factors of a token's result besides the state.
    """

    state: Node
    result: Node
    decays: list[Value]
    added: list[Value]
    corrected: list[Value] | None
    read: list[Value]


class _Body:
    """The update of one state in a loop, and its decomposition into factors."""

    def __init__(self, loop: TokenLoop, state: Node) -> None:
        self._graph, self._loop, self._state = loop.graph, loop, state
        self._carried = state.source(1)
        self._fed = {self._carried.node}
        inside = loop.inside
        reached = self._graph.forward([self._carried], lambda use: use.node.outputs if use.node.index in inside else ())
        self._fed |= {use.node.index for use in reached if use.node.index in inside}

    def terms(self) -> _Terms:
        """Return the factors of the new state.

        Raises:
            MissError: At the first operator that does not match.
        """
        update = self._graph.producer(self._plain(self._state.source()))
        if update.op != "Add":
            raise MissError(update, f"{update.op} computes the new state, expected Add")
        operands = update.source(0), update.source(1)
        for kept, added in (operands, operands[::-1]):
            decays = self._decays(kept)
            if decays is not None:
                result, read = self._result()
                return _Terms(self._state, result, decays, *self._added(added), read)
        raise MissError(update, "no operand of the new state is the old state times a decay")

    def _plain(self, value: Value) -> Value:
        return self._graph.look_through(value, CASTS)

    def _is_fed(self, value: Value) -> bool:
        """Return whether ``value`` depends on the old state."""
        return value.node in self._fed

    def _decays(self, value: Value) -> list[Value] | None:
        decays, value = [], self._plain(value)
        while value != self._carried:
            node = self._graph.producer(value)
            if node.op != "Multiply" or self._is_fed(node.source(0)) == self._is_fed(node.source(1)):
                return None
            state, factor = (0, 1) if self._is_fed(node.source(0)) else (1, 0)
            decays.append(node.source(factor))
            value = self._plain(node.source(state))
        return decays

    def _factors(self, value: Value, end: Value | None = None) -> list[Value]:
        """Return the factors of a product ``value``, possibly summed along axes."""
        pending, factors = [value], []
        while pending:
            current = pending.pop()
            node = self._graph.producer(current)
            if current == end or node.index not in self._loop.inside:
                factors.append(current)
            elif node.op in MOVES or node.op == "ReduceSum":
                pending.append(node.source())
            elif node.op in _PRODUCTS:
                pending += node.sources
            else:
                factors.append(current)
        return factors

    def _added(self, value: Value) -> tuple[list[Value], list[Value] | None]:
        factors = self._factors(value)
        nodes = [self._graph.producer(value) for value in factors if self._is_fed(value)]
        if not nodes:
            return factors, None
        if len(nodes) > 1 or nodes[0].op != "Subtract" or self._is_fed(nodes[0].source(0)):
            raise MissError(nodes[0], f"{nodes[0].op} of the old state is added to it, expected a corrected value")
        # Random inputs are positive, so the runs would not detect a Relu.
        if [value for value in self._factors(nodes[0].source(1)) if self._is_fed(value)] != [self._carried]:
            raise MissError(nodes[0], "the correction is not a product with the old state")
        return [value for value in factors if not self._is_fed(value)], self._factors(nodes[0].source(0))

    def _result(self) -> tuple[Node, list[Value]]:
        used = [node for node in self._loop.exits if node is not self._state and self._graph.uses(node.outputs[0])]
        if len(used) != 1:
            raise MissError(self._state, f"the loop has {len(used)} results besides the state, expected one")
        value = self._plain(used[0].source())
        if used[0].op == "Final":
            node = self._graph.producer(value)
            if node.op not in {"ScatterNDUpdate", "ScatterUpdate"}:
                raise MissError(node, f"{node.op} computes the result of all tokens, expected a scatter")
            # The result of one token, which PyTorch broadcasts to its own shape.
            value = self._graph.look_through(node.source(2), MOVES | {"Broadcast"})
        state = self._plain(self._state.source())
        factors = self._factors(value, state)
        if [value for value in factors if self._is_fed(value)] != [state]:
            raise MissError(self._graph.producer(value), "the result of a token is not a product with the new state")
        return used[0], [value for value in factors if value != state]


def _read(model: Model, loop: TokenLoop, states: list[Node]) -> LinearAttention | Miss:
    """Return the linear attention of the first state that matches, or the first state's miss."""
    sizes = inlined(model).analysis(infer_sizes)
    attempts = [_of_state(loop, state, sizes) for state in states]
    return next((attempt for attempt in attempts if isinstance(attempt, LinearAttention)), attempts[0])


@or_miss
def _of_state(loop: TokenLoop, state: Node, sizes: Sizes) -> LinearAttention:
    return _Shown(loop, LoopNumbers(loop, sizes), _Body(loop, state).terms()).read()


class _Shown:
    """A comparison of loop and equation on random inputs."""

    def __init__(self, loop: TokenLoop, numbers: LoopNumbers, terms: _Terms) -> None:
        self._graph, self._terms = loop.graph, terms
        lengths = _LENGTHS if numbers.fixed_length is None else (numbers.fixed_length,)
        self._runs = [numbers.run(length) for length in lengths]
        self._start = terms.state.source(1)
        shape = self._runs[0].starts[self._start].shape
        if len(shape) != 4 or 1 in shape[2:]:
            raise MissError(terms.state, f"the state has shape {list(shape)}, expected [batch, heads, keys, values]")
        self._batch, self._heads = shape[:2]

    def read(self) -> LinearAttention:
        """Return the linear attention whose equation reproduces the loop's values.

        Raises:
            MissError: No assignment of factors to the equation does.
        """
        terms = self._terms
        added, read = self._factors(terms.added), self._factors(terms.read)
        corrected = None if terms.corrected is None else self._factors(terms.corrected)
        if len(terms.decays) > 1:
            raise MissError(terms.state, f"{len(terms.decays)} factors decay the state, expected at most one")
        decay = next(iter(self._factors(terms.decays)), None)
        if decay is not None:
            decay = self._positive(decay)
        queries, scaled = _split(read)
        vectors, scalars = _split([*added, *(corrected or ())])
        if len(queries) != 1 or len(vectors) != 2 or scaled:
            raise MissError(terms.state, "expected one vector per token and head as key, as value and as query")
        corrections = [] if corrected is None else [scalar for scalar in scalars if scalar in corrected]
        betas = [] if corrected is None else [scalar for scalar in scalars if scalar not in corrections]
        scales = scalars if corrected is None else corrections
        state, result = terms.state.outputs[0], terms.result.outputs[0]
        runs = [
            Sample(run.length, run.starts[self._start], run.results[state], run.results[result]) for run in self._runs
        ]
        values = self._graph.producer(self._start).source(), state, result
        for key, value in (vectors, vectors[::-1]):
            equation = Equation(queries[0], key, value, scales, decay, betas, corrected is not None)
            linear = equation.found(runs, values, terms.result)
            if linear is not None:
                return linear
        raise MissError(terms.state, "the results of the loop differ from linear attention")

    def _factors(self, values: list[Value]) -> list[Factor]:
        return [self._factor(value) for value in values]

    def _factor(self, value: Value) -> Factor:
        """Return ``value`` of each token, with the order of axes of its source.

        Raises:
            MissError: It is a constant vector, or its axes are not batch, token, head and element.
        """
        source, functions = self._source(value)
        names = tuple(node.op for node in functions)
        tokens = [numpy.stack([token.of(value) for token in run.tokens]) for run in self._runs]
        size, is_constant = tokens[0][0].size, source not in self._runs[0].sources
        batch = 1 if is_constant else self._batch
        width, left = divmod(size, batch * self._heads)
        if left and size != batch:
            raise MissError(
                self._graph.producer(value),
                f"{size // batch} elements per token do not divide into {self._heads} heads",
            )
        heads = 1 if left else self._heads
        lined = tuple(array.reshape(len(array), batch, heads, -1).swapaxes(0, 1) for array in tokens)
        if is_constant:
            if width > 1:
                raise MissError(self._graph.producer(value), "a factor of the update is a constant vector")
            numbers = tuple(float(number) for number in lined[0][0, 0, :, 0])
            return Factor(Role(source, (), names, 0 if left else 1, numbers), lined)
        tensors = [run.sources[source] for run in self._runs]
        for node in functions:
            tensors = [self._applied(node, tensor) for tensor in tensors]
        for order in permutations(range(tensors[0].ndim)):
            if all(_same(tensor.transpose(order), wanted) for tensor, wanted in zip(tensors, lined, strict=True)):
                return Factor(Role(source, order, names, 0 if left else width), lined)
        raise MissError(self._graph.producer(value), f"axes of {source.name} are not batch, token, head, element")

    def _positive(self, decay: Factor) -> Factor:
        """Return a decay, of which the operator reads the logarithm.

        Raises:
            MissError: It may be negative.
        """
        role, node = decay.role, self._graph.producer(decay.role.source)
        if role.numbers:
            known = all(number > 0 for number in role.numbers)
        elif role.functions:
            known = role.functions[-1] in _POSITIVE
        elif node.op == "Exp":
            return replace(decay, role=replace(role, source=node.source(), functions=("Exp",)))
        else:
            known = self._graph.producer(self._graph.look_through(role.source, MOVES)).op in _POSITIVE
        if not known:
            raise MissError(node, f"the decay {role.source.name} may be negative")
        return decay

    def _applied(self, node: Node, array: Array) -> Array:
        result = computed(self._graph, node, 0, {node.source(): array}, array.size)
        if result is None:
            raise MissError(node, f"{node.op} cannot be computed ahead")
        return result

    def _source(self, value: Value) -> tuple[Value, tuple[Node, ...]]:
        functions: list[Node] = []
        sources = self._runs[0].sources
        while value not in sources:
            node = self._graph.producer(value)
            if node.op == "Constant":
                break
            if node.op in _FUNCTIONS:
                functions.insert(0, node)
            elif node.op not in _PICKS:
                raise MissError(node, f"{node.op} computes a factor of the update in the loop")
            value = node.source()
        return value, tuple(functions)


def _split(factors: Sequence[Factor]) -> tuple[list[Factor], list[Factor]]:
    """Return the vectors, then the scalars per token and head."""
    return [factor for factor in factors if factor.role.width > 1], [
        factor for factor in factors if factor.role.width <= 1
    ]


def _same(actual: Array, wanted: Array) -> bool:
    """Return whether both have equal elements in order, with axes batch and tokens first."""
    if actual.shape[:2] != wanted.shape[:2] or actual.size != wanted.size:
        return False
    return numpy.allclose(actual.reshape(wanted.shape), wanted, 1e-6, 0)
