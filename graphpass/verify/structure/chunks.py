"""Chunked linear attention as a recurrence over tokens, if random inputs confirm the equation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from graphpass.analysis.equations.linear_attention import find_chunked_attention
from graphpass.analysis.equations.linear_equation import LinearAttention
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Index, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.equal_sizes import as_dimension
from graphpass.analysis.symbolic.expressions import ZERO, Expr, number
from graphpass.analysis.symbolic.places import broadcast_index
from graphpass.analysis.symbolic.sizes import infer_exact_sizes
from graphpass.verify.structure.recurrences import LinearAttentionLayer
from graphpass.verify.structure.tensors import closed, definitions_of

if TYPE_CHECKING:
    from graphpass.ir.graph import Value
    from graphpass.ir.model import Model


class Chunks:
    """Chunked computations of one model that random inputs show to be linear attention.

    Attributes:
        names: Operators that compute the new states.
        rules: Rules of results and new states, by value.
        steps: Sizes of the query (batch, new tokens), by the result's dimension that an export derives from chunks.
    """

    def __init__(self, model: Model) -> None:
        """Find the chunked computations of ``model``."""
        recurrences = model.analysis(find_chunked_attention)
        layers = {name: layer for name, layer in recurrences.items() if isinstance(layer, LinearAttention)}
        sizes = model.analysis(infer_exact_sizes)
        self.names = tuple(layers)
        self.rules: dict[Value, Rule] = {}
        self.steps: dict[Expr, Expr] = {}
        for layer in layers.values():
            self.rules |= dict.fromkeys((layer.present, layer.output), closed(partial(_chunk, layer)))
            own, source = sizes.shape(layer.output), sizes.shape(layer.query.source)
            for axis, size in enumerate(layer.shape):
                if own is not None and source is not None and size in {0, -1} and as_dimension(own[axis]) is not None:
                    self.steps[own[axis]] = source[layer.query.order[-size]]


class _Chunk(LinearAttentionLayer):
    """Operands of chunked linear attention, with axes in any order."""

    def __init__(self, element: Element, layer: LinearAttention) -> None:
        self._layer, self.definitions = layer, definitions_of(element)
        self.decays, self.corrects = layer.decay is not None, layer.corrects
        self.kv_heads = self.key_heads = layer.heads
        self.heads, self.scale = layer.heads * layer.groups, layer.scale
        self.key_dim, self.value_dim = layer.key_dim, layer.value_dim
        if layer.scales or len(layer.betas) > 1:
            raise UnknownError("the value or the correction is a product of several tensors")
        self._beta = next(iter(layer.betas), None)

    def at(self, port: int, row: Expr, token: Expr, head: Expr, channel: Expr) -> Steps:
        layer = self._layer
        role = (layer.query, layer.key, layer.value, None, layer.decay, self._beta)[port]
        assert role is not None
        places = dict(zip(role.order, (row, token, head, channel), strict=False))
        return (yield role.source, tuple(places[axis] for axis in range(len(role.order))))

    def start(self, places: Index) -> Steps:
        return (yield self._layer.past, _swapped(places) if self._layer.transposed else places)


def _swapped(index: Index) -> Index:
    """Return an index of the state with key and value axes swapped."""
    row, head, channel, column = index
    return row, head, column, channel


def _chunk(recurrence: LinearAttention, element: Element) -> Steps:
    tensors = element.elements
    layer, query = _Chunk(element, recurrence), recurrence.query
    sizes = tensors.shape(query.source)
    rows, tokens = sizes[query.order[0]], sizes[query.order[1]]
    if element.value == recurrence.present:
        index = _swapped(element.index) if recurrence.transposed else element.index
        return (yield from layer.state(replace(element, index=index), rows, tokens))
    row, token, head, group, column = _lined(recurrence, element.index)
    own = ex.add(ex.multiply(head, number(recurrence.groups)), group)
    result = yield from layer.result(element, rows, tokens, (row, token, own, column))
    skip = recurrence.skip
    if skip is None:
        return result
    places = (row, token, own, column)
    factor_sizes = tensors.shape(skip.factor)
    at = places[len(places) - len(factor_sizes) :]
    factor = yield skip.factor, broadcast_index(at, factor_sizes)
    return ex.add(result, ex.multiply((yield skip.source, places), factor))


def _lined(layer: LinearAttention, index: Index) -> list[Expr]:
    """Return batch, token, head, query of the head, and channel of a result's element."""
    sizes = (0, -1, layer.heads, layer.groups, layer.value_dim)
    places: list[Expr] = [ZERO] * len(sizes)
    for place, axes in zip(index, _parts([sizes[axis] for axis in layer.order], layer.shape), strict=True):
        rest = place
        for axis in reversed(axes):
            size = sizes[layer.order[axis]]
            is_whole = axis == axes[0]
            places[layer.order[axis]] = rest if is_whole else ex.modulo(rest, number(size))
            rest = rest if is_whole else ex.floor_divide(rest, number(size))
    return places


def _parts(lined: Sequence[int], shape: Sequence[int]) -> Iterator[list[int]]:
    """Yield the axes of ``lined`` that each axis of ``shape`` merges, except size 1."""
    left = [axis for axis, size in enumerate(lined) if size != 1]
    for size in shape:
        taken = left[:1]
        while size > 0 and math.prod(lined[axis] for axis in taken) < size:
            taken = left[: len(taken) + 1]
        if size != 1:
            left = left[len(taken) :]
        yield taken if size != 1 else []
