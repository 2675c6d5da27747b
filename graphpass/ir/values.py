"""Classify values and their types."""

from __future__ import annotations

import math

from graphpass.ir.element_types import ELEMENT_TYPES, element_bytes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import CASTS, COMPRESSED_PRODUCTS, MATRIX_PRODUCTS, MOVES, POSITIONWISE, PRODUCTS

#: Types of whole numbers.
INTEGERS = frozenset({"i4", "i8", "i16", "i32", "i64", "u4", "u8", "u16", "u32", "u64"})

#: Types of other numbers.
REALS = frozenset({"bf16", "f16", "f32", "f64"})

#: Those of 16 bits.
HALVES = frozenset({"bf16", "f16"})

#: Types in which compressed weights are stored.
_STORED = frozenset({"i4", "i8", "u4", "u8"})

#: Masked scores: the lowest number of f16. It is finite in f16, bf16 and f32, so that rows that are masked whole stay
#: free of NaN at any inference precision, and exp of it is 0. Optimum's exports use the same.
MASKED = -65504.0

#: Below this a score counts as masked: its ``exp`` is 0 beside any other score.
MASKED_BELOW = -1e3


def is_wider(element_type: str, other: str) -> bool:
    """Return whether numbers of ``element_type`` keep more bits than those of ``other``."""
    both = element_type in REALS and other in REALS
    return both and ELEMENT_TYPES[element_type].bits > ELEMENT_TYPES[other].bits


def is_scalar(value: Value) -> bool:
    """Return whether all dimensions of ``value`` are 1."""
    return value.shape is not None and all(dimension == 1 for dimension in value.shape)


def fixed_size(value: Value | None, axis: int) -> int | None:
    """Return the size along ``axis`` if it is fixed."""
    shape = value.shape if value is not None else None
    size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    return size if isinstance(size, int) else None


def known_elements(value: Value) -> int:
    """Return the number of elements; dimensions that are not fixed count as 1."""
    return math.prod(size for size in value.shape or () if isinstance(size, int))


def is_activation(graph: Graph, value: Value | None) -> bool:
    """Return whether ``value`` is not a weight, dequantized, laid out or sliced ones included."""

    def sources(node: Node) -> tuple[Value | None, ...]:
        if node.op in {"Multiply", "Subtract"}:
            return node.inputs
        return node.inputs[:1] if node.op in _WEIGHT_FORMS else ()

    return any(
        node.op not in _WEIGHT_FORMS | {"Multiply", "Subtract", "Constant"} for node in graph.backward([value], sources)
    )


#: Lie between a weight as it is stored and its product.
_WEIGHT_FORMS = MOVES | {"DequantizeLinear", "Sliced"}


def multiplies_matrices(node: Node) -> bool:
    """Return whether a node multiplies matrices of the last two axes, which attributes may exchange."""
    return node.op in MATRIX_PRODUCTS and "transpose_a" in node.attributes


def is_value_preserving(node: Node) -> bool:
    """Return whether ``node`` passes its elements on, unrounded by integers or booleans."""
    if node.op not in CASTS or node.inputs[0] is None:
        return False
    types = {node.inputs[0].element_type, node.outputs[0].element_type}
    return node.op == "Identity" or types <= REALS | {"dynamic"}


def is_idle(node: Node) -> bool:
    """Return whether ``node`` passes its elements on in the type that they have."""
    is_same = node.op == "Convert" and node.source().element_type == node.outputs[0].element_type
    return is_same or node.op == "Identity"


def head_of(graph: Graph, result: Node) -> Node | None:
    """Return the product with weights upstream of the logits, if nothing in between joins positions."""
    value = result.source()
    while True:
        node = graph.producer(value)
        if node.op in PRODUCTS:
            return None if node.op not in COMPRESSED_PRODUCTS and is_activation(graph, node.input(1)) else node
        active = [value for value in node.sources if is_activation(graph, value)]
        if node.op not in POSITIONWISE or len(active) != 1:
            return None
        value = active[0]


def weight_bytes(graph: Graph) -> float:
    """Return the bytes of all constants of known size and type."""
    total = 0.0
    for node in graph.of_op("Constant"):
        value = node.outputs[0]
        total += element_bytes(value.element_type) * known_elements(value)
    return total


def is_compressed(graph: Graph) -> bool:
    """Return whether a matrix of weights is stored in integers."""
    values = (node.outputs[0] for node in graph.of_op("Constant"))
    return any(value.element_type in _STORED and len(value.shape or ()) > 1 for value in values)
