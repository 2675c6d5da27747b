"""The recurrence of linear attention, to compare with the values of a loop or chunk.

For each token with query ``q``, key ``k`` and value ``v``, the state ``S`` ``[keys, values]`` is updated and read::

    S = decay * S
    v = scale * v
    v = beta * (v - k S)    # with a correction (delta rule)
    S = S + outer(k, v)
    output = q S
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

#: Tolerance in f32 relative to the largest element; corrections by large keys cancel most digits of other elements.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class Role:
    """A tensor with an entry per token, as the equation reads it.

    Attributes:
        source: The tensor outside of the loop.
        order: Its axes in the order batch, token, head, element; the last ones may include axes of size 1.
        functions: Elementwise operators applied to it, in order.
        width: Elements per token and head; 0 for one element that all heads share.
        numbers: Elements of a constant, a single one or one per head; ``order`` and ``functions`` do not apply then.
    """

    source: Value
    order: tuple[int, ...]
    functions: tuple[str, ...]
    width: int
    numbers: tuple[float, ...] = ()

    def moved(self, values: Mapping[Value, Value]) -> Role:
        """Return the role with ``source`` replaced by its counterpart in ``values``."""
        return replace(self, source=values[self.source])


@dataclass(frozen=True)
class Skip:
    """A product that is added to the result, as in Mamba-2.

    Attributes:
        source: Tensor with an entry per token, in the axes of the result.
        factor: Constant factor.
    """

    source: Value
    factor: Value


@dataclass(frozen=True)
class LinearAttention:
    """Linear attention that a loop or a chunk computes.

    Attributes:
        past: The state before the first token.
        present: The state after the last token.
        output: Result of all tokens.
        order: Axes of ``output`` as indices into (batch, token, head, query of the head, element).
        shape: Target of a Reshape to ``output``: 0 for batch, -1 for tokens.
        query: Query, which reads the state.
        key: Key of the outer product.
        value: Value of the outer product.
        scales: Factors of the value, one element per token and head.
        decay: Factor of the state, per head or per row of keys; ``None`` without.
        betas: Factors of the corrected value, one element per token and head.
        corrects: Whether the value is corrected (delta rule).
        heads: Number of heads of keys and values.
        groups: Number of query heads per key head.
        key_dim: Size of a key.
        value_dim: Size of a value.
        transposed: Whether the state has the axis of values before that of keys.
        scale: Factor of the result.
        skip: A product that is added to the result, if any.
        chunk: Number of tokens to which shorter inputs are padded; ``None`` if any number is supported.
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
        """Return the attribute ``update_rule`` of LinearAttention."""
        if self.corrects:
            return "delta" if self.decay is None else "gated_delta"
        return "linear" if self.decay is None else "gated"

    def moved(self, values: Mapping[Value, Value]) -> LinearAttention:
        """Return the linear attention of another layer with equal operators.

        Args:
            values: Tensors of that layer by the corresponding tensors of this layer.
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
class Sample:
    """Tensors of one run of a loop or chunk.

    Attributes:
        length: Number of tokens.
        start: The state before the first token.
        end: The state after the last token.
        result: The result of all tokens.
    """

    length: int
    start: Array
    end: Array
    result: Array


@dataclass(frozen=True)
class Equation:
    """A candidate equation; the terms are those of `LinearAttention`."""

    query: Factor
    key: Factor
    value: Factor
    scales: Sequence[Factor]
    decay: Factor | None
    betas: Sequence[Factor]
    corrects: bool

    def compute(self, run: int, state: Array) -> tuple[Array, Array]:
        """Return the last state, and the result ``[batch, tokens, heads, queries, elements]``.

        Args:
            run: Index of the run.
            state: The first state, ``[batch, heads, keys, values]``.
        """
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
        """Return the sizes of keys and values; ``None`` if query or decay is incompatible."""
        key, value = self.key.role.width, self.value.role.width
        decay = 1 if self.decay is None else self.decay.role.width
        return (key, value) if self.query.role.width % key == 0 and decay in {0, 1, key} else None

    def found(self, runs: Sequence[Sample], values: tuple[Value, Value, Value], last: Node) -> LinearAttention | None:
        """Return the linear attention if the equation reproduces ``runs``; ``None`` otherwise.

        Args:
            runs: Runs of the loop or chunk.
            values: The first state, the last state, and the result.
            last: Producer of the result.

        Raises:
            MissError: The result merges batch or tokens with another axis.
        """
        sides = runs[0].start.shape[2:]
        for transposed in (False, True):
            if self.widths() == (sides[::-1] if transposed else sides):
                laid_out = self._laid_out(runs, transposed=transposed)
                if laid_out is not None:
                    return self._described(runs[0], values, last, *laid_out, transposed=transposed)
        return None

    def _laid_out(self, runs: Sequence[Sample], *, transposed: bool) -> tuple[tuple[int, ...], float] | None:
        """Return order of axes and scale of the result if all runs agree."""
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
        run: Sample,
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
            raise MissError(last, "the result merges batch or tokens with another axis")
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
    """Return the target of a Reshape to ``shape``; ``None`` if it merges free axes.

    Args:
        lined: Sizes before; those of batch and tokens are not multiples of the others.
        shape: Sizes after.
        free: Axes of batch and tokens in ``lined``, which become 0 and -1.
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
    """Return whether ``result`` is ``output`` with its axes in ``order``, reshaped."""
    return _close(result, output.transpose(order).reshape(result.shape))
