"""Large constants of both models, by digests of their values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy

from graphpass.dialects.weights import holder_of, weights_of
from graphpass.ir.graph import Graph, Value
from graphpass.ir.values import HALVES
from graphpass.verify.structure.definitions import KnownWeight

if TYPE_CHECKING:
    from graphpass.ir.model import Model

#: Constants of fewer elements are written out, as numbers, ranges and bands.
SMALL = 4096


class WeightDigests:
    """Large constants by digests of their values; those of equal shape and contents are equal."""

    def __init__(self, models: tuple[Model, Model]) -> None:
        """Begin with weights in one place of a file for both models, which stay unread.

        Raises:
            ReadError: GP105, as `weights_of`.
        """
        shared = _shared_weights(models)
        self._shared = frozenset(shared)
        self._known: dict[tuple[int, int], KnownWeight | None] = dict(shared)

    def is_shared(self, graph: Graph, value: Value) -> bool:
        """Return whether both models read a constant from one place of a file."""
        return (id(graph), value.node) in self._shared

    def of(self, graph: Graph, value: Value) -> KnownWeight | None:
        """Return a constant; ``None`` if it cannot be read."""
        key = id(graph), value.node
        if key not in self._known:
            self._known[key] = _weight_of(graph, value)
        return self._known[key]


def _shared_weights(models: tuple[Model, Model]) -> dict[tuple[int, int], KnownWeight]:
    by_holder = [{weight.holder: weight for weight in weights_of(model, SMALL)} for model in models]
    places = set.intersection(*({weight.bytes_of for weight in weights.values()} for weights in by_holder)) - {None}
    entries = [
        (id(graph), node, weights[holder_of(node)])
        for graph, weights in zip((model.graph for model in models), by_holder, strict=True)
        for node in graph.of_op("Constant")
        if holder_of(node) in weights
    ]
    return {
        (graph, node.index): KnownWeight(f"{weight.bytes_of} {_kind(weight.element_type, weight.shape)}", node.name)
        for graph, node, weight in entries
        if weight.bytes_of in places
    }


def _kind(element_type: str, shape: Iterable[int]) -> str:
    return f"{element_type} {[size for size in shape if size != 1]}"


def _weight_of(graph: Graph, value: Value) -> KnownWeight | None:
    try:
        constant = graph.constant(value, 1 << 62)
    except FileNotFoundError:
        return None
    if constant is None or constant.dtype.hasobject:
        return None
    return KnownWeight(digest_of(constant, value.element_type), value.name)


def digest_of(array: numpy.ndarray[Any, Any], element_type: str) -> str:
    """Return a digest of shape and values; those of f16 and bf16 count as f32."""
    if element_type in HALVES:
        array = array.astype(numpy.float32)
    shape = [size for size in array.shape if size != 1]
    kind = f"{array.dtype.str} {element_type if element_type not in HALVES else 'f32'} {shape}"
    return _digest(kind, numpy.ascontiguousarray(array))


def _digest(kind: str, array: numpy.ndarray[Any, Any]) -> str:
    hasher = hashlib.sha256(kind.encode())
    hasher.update(array.reshape(-1).view(numpy.uint8).data)
    return hasher.hexdigest()
