"""Large constants of both models, identified by digests of their values."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy

from graphpass.dialects.packed_bits import FOUR_BITS, packed, unpacked
from graphpass.dialects.weights import Weight, digests_of_weights, holder_of, weights_of
from graphpass.ir.graph import Graph, Value
from graphpass.ir.values import HALVES, STORED
from graphpass.verify.structure.definition import KnownWeight

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model

Array: TypeAlias = "numpy.ndarray[Any, Any]"

_Weights: TypeAlias = Mapping[tuple[int, int], tuple[Weight, str]]
"""Weights with the names of their nodes, by identity of the graph and index of the node."""

#: Constants of up to this many elements are expressions: numbers, ranges and bands.
SMALL = 4096

#: Elements that are hashed at a time.
_PIECE = 1 << 22


class WeightDigests:
    """Digests of large constants; equal constants have equal digests.

    Digests of compressed weights (`STORED`) do not depend on the shape, because models divide the same bytes in other
    ways into rows and blocks.
    """

    def __init__(self, models: tuple[Model, Model]) -> None:
        """Find weights with equal bytes, without reading those in the same place of a file.

        Raises:
            ReadError: GP105, GP110 and GP111, as `weights_of` and `digests_of_weights`.
        """
        large = _large(models)
        shared = _in_both(large, lambda weight: weight.bytes_of)
        self._shared = frozenset(shared)
        self._stored = {**shared, **_equal_weights(_rest(large, shared))}
        self._known: dict[tuple[int, int], KnownWeight | None] = {
            place: stored.as_weight(stored.weight.element_type, stored.weight.shape)
            for place, stored in self._stored.items()
        }
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._packed: dict[tuple[object, ...], KnownWeight | None] = {}

    def is_shared(self, graph: Graph, value: Value) -> bool:
        """Return whether both models read a constant from the same bytes of a file.

        Args:
            graph: Graph of the constant.
            value: The constant.
        """
        return (id(graph), value.node) in self._shared

    def of(self, graph: Graph, value: Value) -> KnownWeight | None:
        """Return the identity of a constant; ``None`` if it cannot be read.

        Args:
            graph: Graph of the constant.
            value: The constant, of any size.
        """
        key = id(graph), value.node
        if key not in self._known:
            self._known[key] = _weight_of(graph, value)
        return self._known[key]

    def shape_of(self, weight: KnownWeight, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the first constant with this content.

        Args:
            weight: A compressed weight.
            shape: The shape of the constant at hand.
        """
        return self._shapes.setdefault(weight.digest, shape)

    def of_packed(self, graph: Graph, value: Value, element_type: str, shape: tuple[int, ...]) -> KnownWeight | None:
        """Return the identity of the integers that the bytes of a constant store.

        Args:
            graph: Graph of the constant.
            value: The constant, u8.
            element_type: u4 for two integers a byte, or u8.
            shape: The shape of the integers.

        Returns:
            ``None`` if the constant cannot be read, or has another number of bytes.
        """
        key = id(graph), value.node, element_type, shape
        if key not in self._packed:
            stored = self._stored.get((id(graph), value.node))
            in_byte = 2 if element_type == "u4" else 1
            if stored is not None and stored.weight.size * in_byte == math.prod(shape):
                self._packed[key] = stored.as_weight(element_type, shape)
            else:
                constant = unpacked_constant(graph, value, element_type, shape)
                self._packed[key] = None if constant is None else _compressed(constant, element_type, value.name)
        return self._packed[key]


@dataclass(frozen=True, slots=True)
class _StoredWeight:
    """A weight that both models have, with the key of its bytes."""

    key: Hashable
    weight: Weight
    name: str

    def as_weight(self, element_type: str, shape: Iterable[int]) -> KnownWeight:
        if element_type in STORED:
            return KnownWeight(f"{self.key} {element_type}", self.name, str(self.key))
        return KnownWeight(f"{self.key} {element_type} {[size for size in shape if size != 1]}", self.name)


def _large(models: tuple[Model, Model]) -> tuple[_Weights, _Weights]:
    """Return the large weights of each model by graph and node."""
    first, second = (
        {
            (id(model.graph), node.index): (weights[holder_of(node)], node.name)
            for weights in [{weight.holder: weight for weight in weights_of(model, SMALL)}]
            for node in model.graph.of_op("Constant")
            if holder_of(node) in weights
        }
        for model in models
    )
    return first, second


def _in_both(
    both: tuple[_Weights, _Weights], key_of: Callable[[Weight], Hashable]
) -> dict[tuple[int, int], _StoredWeight]:
    """Return the weights with a key of location or content that both models have."""
    keys = [{place: key_of(weight) for place, (weight, _) in weights.items()} for weights in both]
    common = set.intersection(*(set(side.values()) for side in keys)) - {None}
    return {
        place: _StoredWeight(keys[side][place], weight, name)
        for side, weights in enumerate(both)
        for place, (weight, name) in weights.items()
        if keys[side][place] in common
    }


def _rest(
    both: tuple[_Weights, _Weights], shared: Mapping[tuple[int, int], _StoredWeight]
) -> tuple[_Weights, _Weights]:
    """Return the weights to compare by content.

    These are weights that the models do not read from the same place of a file, and those that one model also has in
    another place, under the same name.
    """
    rest = [{place: entry for place, entry in side.items() if place not in shared} for side in both]
    named = {(name, weight.size) for side in rest for weight, name in side.values()}
    keys = {stored.key for stored in shared.values() if (stored.name, stored.weight.size) in named}
    again = {place for place, stored in shared.items() if stored.key in keys}
    first, second = (
        {**left, **{p: e for p, e in side.items() if p in again}} for left, side in zip(rest, both, strict=True)
    )
    return first, second


def _equal_weights(both: tuple[_Weights, _Weights]) -> dict[tuple[int, int], _StoredWeight]:
    """Return the weights whose bytes equal those of a weight in the other model."""
    sizes = [{weight.size for weight, _ in weights.values()} for weights in both]
    digests = digests_of_weights(
        weight for weights in both for weight, _ in weights.values() if all(weight.size in each for each in sizes)
    )
    return _in_both(both, digests.get)


def _weight_of(graph: Graph, value: Value) -> KnownWeight | None:
    constant = constant_elements(graph, value)
    if constant is None:
        return None
    if value.element_type in STORED:
        return _compressed(constant, value.element_type, value.name)
    return KnownWeight(digest_of(constant, value.element_type), value.name)


def _compressed(constant: Array, element_type: str, name: str) -> KnownWeight:
    """Return the identity of integers of 4 or 8 bits."""
    flat: NDArray[numpy.uint8] = numpy.ascontiguousarray(constant).view(numpy.uint8).reshape(-1)
    whole = packed(numpy.bitwise_and(flat, numpy.uint8(15))) if element_type in FOUR_BITS else flat
    stored = hashlib.sha256(whole.data).hexdigest()
    return KnownWeight(f"{stored} {element_type}", name, stored)


def constant_elements(graph: Graph, value: Value) -> Array | None:
    """Return the elements of a constant of any size in its shape; ``None`` if unreadable.

    Args:
        graph: Graph of the constant.
        value: The constant.
    """
    try:
        constant = graph.constant(value, 1 << 62)
    except FileNotFoundError:
        return None
    return None if constant is None or constant.dtype.hasobject else constant


def unpacked_constant(graph: Graph, value: Value, element_type: str, shape: tuple[int, ...]) -> Array | None:
    """Return the integers that the bytes of a constant store.

    Args:
        graph: Graph of the constant.
        value: The constant, u8.
        element_type: u4 for two integers a byte, or u8.
        shape: The shape of the integers; in u4, the last axis is padded to whole bytes.

    Returns:
        ``None`` if the constant cannot be read, or has another number of bytes.
    """
    stored = constant_elements(graph, value)
    if stored is None or stored.dtype != numpy.uint8:
        return None
    numbers = stored.reshape(-1) if element_type == "u8" else unpacked(stored.reshape(-1))
    padded = (*shape[:-1], shape[-1] + is_padded(element_type, shape))
    return numbers.reshape(padded)[..., : shape[-1]] if numbers.size == math.prod(padded) else None


def is_padded(element_type: str, shape: tuple[int, ...]) -> bool:
    """Return whether the last axis is padded to whole bytes.

    Args:
        element_type: u4 or u8.
        shape: The shape without padding.
    """
    return element_type == "u4" and shape[-1] % 2 == 1


def digest_of(array: Array, element_type: str, stored: Callable[[Array], Array] | None = None) -> str:
    """Return the SHA-256 digest of shape, element type and values.

    Elements of f16 and bf16 are hashed as f32.

    Args:
        array: The constant.
        element_type: The element type in the model.
        stored: Rounds a piece of the elements as another model stores them; unchanged by default.
    """
    is_half = element_type in HALVES
    shape = [size for size in array.shape if size != 1]
    dtype = numpy.dtype(numpy.float32) if is_half else array.dtype
    hasher = hashlib.sha256(f"{dtype.str} {'f32' if is_half else element_type} {shape}".encode())
    flat = array.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        piece = flat[start : start + _PIECE]
        piece = piece.astype(dtype) if is_half else piece
        hasher.update(numpy.ascontiguousarray(piece if stored is None else stored(piece)).view(numpy.uint8).data)
    return hasher.hexdigest()
