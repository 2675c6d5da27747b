"""The equation of linear attention, computed beside what may compute it.

A state of keys by values takes in one token after the other: it decays, a correction takes from the value what the
state holds for the key, their outer product is added, and the query reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Literal, TypeAlias

import numpy

from graphpass.analysis.symbolic.rounding import Array
from graphpass.ir.graph import Node, Value
from graphpass.ir.miss import MissError

Rule: TypeAlias = Literal["linear", "gated", "delta", "gated_delta"]

#: Difference of rounding in f32, of the largest number: corrections by large keys cancel most digits of the others.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class Role:
    """A tensor of all tokens, as the equation reads it.

    Attributes:
        source: The tensor outside of the loop.
        order: Its axes in the order batch, token, head, element; axes of size 1 may stand among the last ones.
        functions: Operators on its elements, the first one first.
        width: Elements a token and head; 0 for one number for all heads.
        numbers: Its elements, one or one a head, if they are constant; the rest does not count then.
    """

    source: Value
    order: tuple[int, ...]
    functions: tuple[str, ...]
    width: int
    numbers: tuple[float, ...] = ()

    def moved(self, values: Mapping[Value, Value]) -> Role:
        """Return the role of another tensor."""
        return replace(self, source=values[self.source])


@dataclass(frozen=True)
class Skip:
    """A product that is added to the result, as in Mamba-2.

    Attributes:
        source: Tensor of all tokens, with axes as the result.
        factor: Constant that it is multiplied by.
    """

    source: Value
    factor: Value


@dataclass(frozen=True)
class LinearAttention:
    """A loop that computes linear attention.

    Attributes:
        past: Start of the state.
        present: The state after the last token.
        output: Result of all tokens.
        order: Places among batch, token, head, query of the head, and element, in the order of ``output``.
        shape: Sizes of ``output``; 0 for batch, -1 for tokens.
        query: Reads the state.
        key: Is written to.
        value: Is written.
        scales: Numbers a token and head that the value is multiplied by.
        decay: Factors of the state, for each head or each of its rows; ``None`` without.
        betas: Numbers a token and head that the correction is multiplied by.
        corrects: Whether the state is corrected.
        heads: Number of heads of keys and values.
        groups: Number of queries for each.
        key_dim: Size of a key.
        value_dim: Size of a value.
        transposed: Whether the state has values before keys.
        scale: Factor of the result.
        skip: A product that is added to the result, if any.
        chunk: Number of tokens to which fewer are padded; ``None`` if any number is computed.
    """

    past: Value
    present: Value
    output: Value
    order: tuple[int, ...]
    shape: tuple[int, ...]
    query: Role
    key: Role
    value: Role
    scales: tuple[Role, ...]
    decay: Role | None
    betas: tuple[Role, ...]
    corrects: bool
    heads: int
    groups: int
    key_dim: int
    value_dim: int
    transposed: bool
    scale: float = 1.0
    skip: Skip | None = None
    chunk: int | None = None

    @property
    def rule(self) -> Rule:
        """Return the operator's ``update_rule``."""
        if self.corrects:
            return "delta" if self.decay is None else "gated_delta"
        return "linear" if self.decay is None else "gated"

    def moved(self, values: Mapping[Value, Value]) -> LinearAttention:
        """Return the same of another layer.

        Args:
            values: Tensors of that layer, by those of this one.
        """
        skip = self.skip
        return replace(
            self,
            past=values[self.past],
            present=values[self.present],
            output=values[self.output],
            query=self.query.moved(values),
            key=self.key.moved(values),
            value=self.value.moved(values),
            scales=tuple(scale.moved(values) for scale in self.scales),
            decay=None if self.decay is None else self.decay.moved(values),
            betas=tuple(beta.moved(values) for beta in self.betas),
            skip=None if skip is None else Skip(values[skip.source], values[skip.factor]),
        )


@dataclass(frozen=True)
class Factor:
    """A factor of the equation: ``[batch, tokens, heads or 1, elements]`` in each run."""

    role: Role
    runs: tuple[Array, ...]


@dataclass(frozen=True)
class Run:
    """Numbers for one length.

    Attributes:
        length: Number of tokens.
        start: The first state.
        end: The last state.
        result: The result of all tokens.
    """

    length: int
    start: Array
    end: Array
    result: Array


@dataclass(frozen=True)
class Equation:
    """Linear attention, see `LinearAttention`."""

    query: Factor
    key: Factor
    value: Factor
    scales: Sequence[Factor]
    decay: Factor | None
    betas: Sequence[Factor]
    corrects: bool

    def compute(self, run: int, state: Array) -> tuple[Array, Array]:
        """Return the last state, and the result ``[batch, tokens, heads, queries, elements]``."""
        query, key, value = (factor.runs[run] for factor in (self.query, self.key, self.value))
        outputs = []
        for scale in self.scales:
            value = value * scale.runs[run]
        query = query.reshape(*query.shape[:3], -1, key.shape[3])
        for token in range(query.shape[1]):
            if self.decay is not None:
                state = state * self.decay.runs[run][:, token, :, :, None]
            new = value[:, token]
            if self.corrects:
                new = new - numpy.einsum("bhk,bhkv->bhv", key[:, token], state)
            for beta in self.betas:
                new = new * beta.runs[run][:, token]
            state = state + numpy.einsum("bhk,bhv->bhkv", key[:, token], new)
            outputs.append(numpy.einsum("bhgk,bhkv->bhgv", query[:, token], state))
        return state, numpy.stack(outputs, axis=1)

    def widths(self) -> tuple[int, int] | None:
        """Return the sizes of keys and values if those of query and decay fit."""
        key, value = self.key.role.width, self.value.role.width
        decay = 1 if self.decay is None else self.decay.role.width
        return (key, value) if self.query.role.width % key == 0 and decay in {0, 1, key} else None

    def found(self, runs: Sequence[Run], values: tuple[Value, Value, Value], last: Node) -> LinearAttention | None:
        """Return the equation as ``runs`` have it; ``None`` if the numbers are others.

        Args:
            runs: Its runs.
            values: The first state, the last one, and the result.
            last: The node that makes the result.

        Raises:
            MissError: The result has batch or tokens in one axis with others.
        """
        sides = runs[0].start.shape[2:]
        for transposed in (False, True):
            if self.widths() == (sides[::-1] if transposed else sides):
                laid_out = self._laid_out(runs, transposed=transposed)
                if laid_out is not None:
                    return self._described(runs[0], values, last, *laid_out, transposed=transposed)
        return None

    def _laid_out(self, runs: Sequence[Run], *, transposed: bool) -> tuple[tuple[int, ...], float] | None:
        """Return order of axes and scale of the result if all numbers agree."""
        layouts = [(order, scale) for scale in (1.0, self.key.role.width**-0.5) for order in permutations(range(5))]
        for place, run in enumerate(runs):
            state, output = self.compute(place, run.start.swapaxes(2, 3) if transposed else run.start)
            if not _close(run.end, state.swapaxes(2, 3) if transposed else state):
                return None
            layouts = [
                (order, scale)
                for order, scale in layouts
                if run.result.size == output.size and _lies(output * numpy.float32(scale), order, run.result)
            ]
        return layouts[0] if layouts else None

    def _described(
        self,
        run: Run,
        values: tuple[Value, Value, Value],
        last: Node,
        order: tuple[int, ...],
        scale: float,
        *,
        transposed: bool,
    ) -> LinearAttention:
        key_dim, value_dim = self.key.role.width, self.value.role.width
        (batch, heads), groups = run.start.shape[:2], self.query.role.width // key_dim
        sizes = batch, run.length, heads, groups, value_dim
        lined = [sizes[axis] for axis in order]
        shape = _target(lined, run.result.shape, (order.index(0), order.index(1)))
        if shape is None:
            raise MissError(last, "the result has batch or tokens in one axis with others")
        past, present, output = values
        return LinearAttention(
            past=past,
            present=present,
            output=output,
            order=order,
            shape=shape,
            query=self.query.role,
            key=self.key.role,
            value=self.value.role,
            scales=tuple(factor.role for factor in self.scales),
            decay=None if self.decay is None else self.decay.role,
            betas=tuple(factor.role for factor in self.betas),
            corrects=self.corrects,
            heads=heads,
            groups=groups,
            key_dim=key_dim,
            value_dim=value_dim,
            transposed=transposed,
            scale=scale,
        )


def _target(lined: Sequence[int], shape: Sequence[int], free: tuple[int, int]) -> tuple[int, ...] | None:
    """Return the sizes that reshape axes ``lined`` to ``shape``: 0 for batch, -1 for tokens.

    Args:
        lined: Sizes of the axes; those of batch and tokens are not multiples of the others.
        shape: Sizes to make.
        free: Places of batch and tokens in ``lined``.
    """
    target, axis = [], 0
    for place, size in enumerate(shape):
        first, product = axis, 1
        while product < size and axis < len(lined):
            product *= lined[axis]
            axis += 1
        if product != size:
            return None
        parts = {place for place in range(first, axis) if lined[place] != 1}
        if (parts & set(free) and len(parts) > 1) or (free[0] in parts and free[0] != place):
            return None
        target.append(0 if free[0] in parts else -1 if free[1] in parts else size)
    return tuple(target)


def _close(actual: Array, wanted: Array) -> bool:
    return actual.shape == wanted.shape and bool(
        numpy.abs(actual - wanted).max() <= _ROUNDING * numpy.abs(wanted).max()
    )


def _lies(output: Array, order: tuple[int, ...], result: Array) -> bool:
    """Return whether ``result`` is ``output`` with its axes in this order."""
    return _close(result, output.transpose(order).reshape(result.shape))
