"""Classify values and their types."""

from __future__ import annotations

import math
from collections.abc import Iterator

from graphpass.ir.element_types import ELEMENT_TYPES, element_bytes
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.operators import (
    CASTS,
    COMPRESSED_PRODUCTS,
    GATHERS,
    LAYOUT,
    MATRIX_PRODUCTS,
    MOVES,
    POSITIONWISE,
    PRODUCTS,
)

#: Integer types.
INTEGERS = frozenset({"i4", "i8", "i16", "i32", "i64", "u4", "u8", "u16", "u32", "u64"})

#: Floating-point types.
REALS = frozenset({"bf16", "f16", "f32", "f64"})

#: Floating-point types of 16 bits.
HALVES = frozenset({"bf16", "f16"})

#: Storage types of compressed weights.
STORED = frozenset({"i4", "i8", "u4", "u8"})

#: Select rows of a table.
_LOOKUPS = GATHERS | {"GatherBlockQuantized"}

#: Masked scores: the lowest finite value of f16. It is finite in f16, bf16 and f32, so a row whose keys are all masked
#: has no NaN at any inference precision; its exp is 0. Optimum's exports use the same value.
MASKED = -65504.0

#: A score below this value is masked: its ``exp`` is 0 relative to any unmasked score.
MASKED_BELOW = -1e3


def is_wider(element_type: str, other: str) -> bool:
    """Return whether ``element_type`` has more bits than ``other``, if both are floating-point.

    Args:
        element_type: OpenVINO's short name of the type that may be wider.
        other: Short name of the type to compare with.
    """
    both = element_type in REALS and other in REALS
    return both and ELEMENT_TYPES[element_type].bits > ELEMENT_TYPES[other].bits


def is_scalar(value: Value) -> bool:
    """Return whether all dimensions of ``value`` are 1."""
    return value.shape is not None and all(dimension == 1 for dimension in value.shape)


def fixed_size(value: Value | None, axis: int) -> int | None:
    """Return the size along an axis; ``None`` if it is unknown or not fixed.

    Args:
        value: Any value; ``None`` for an omitted input.
        axis: Index of the axis, counted from the end if negative; its size is unknown if the value lacks it.
    """
    shape = value.shape if value is not None else None
    size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    return size if isinstance(size, int) else None


def known_elements(value: Value) -> int:
    """Return the number of elements; a dimension that is not fixed counts as 1."""
    return math.prod(size for size in value.shape or () if isinstance(size, int))


def is_activation(graph: Graph, value: Value | None) -> bool:
    """Return whether ``value`` is not derived from weights alone by dequantization, layout operators or slices.

    Args:
        graph: The graph that computes the value.
        value: Any value; ``None``, an omitted input, is not an activation.
    """

    def sources(node: Node) -> tuple[Value | None, ...]:
        if node.op in {"Multiply", "Subtract"}:
            return node.inputs
        return node.inputs[:1] if node.op in _WEIGHT_FORMS else ()

    return any(
        node.op not in _WEIGHT_FORMS | {"Multiply", "Subtract", "Constant"} for node in graph.backward([value], sources)
    )


#: Operators between a stored weight and its product.
_WEIGHT_FORMS = MOVES | {"DequantizeLinear", "Sliced"}


def multiplies_matrices(node: Node) -> bool:
    """Return whether a node multiplies matrices and has flags to transpose the last two axes."""
    return node.op in MATRIX_PRODUCTS and "transpose_a" in node.attributes


def is_value_preserving(node: Node) -> bool:
    """Return whether ``node`` returns its elements without rounding to integers or booleans."""
    if is_copy(node):
        return True
    if node.op not in CASTS or node.inputs[0] is None:
        return False
    return {node.inputs[0].element_type, node.outputs[0].element_type} <= REALS | {"dynamic"}


def is_copy(node: Node) -> bool:
    """Return whether ``node`` is an Identity, or a Concat of one tensor.

    Exporters write such a Concat for a past that is joined to an empty tensor.
    """
    return node.op == "Identity" or (node.op == "Concat" and len(node.inputs) == 1)


def is_idle(node: Node) -> bool:
    """Return whether ``node`` returns its input unchanged in elements and type."""
    return is_copy(node) or (node.op == "Convert" and node.source().element_type == node.outputs[0].element_type)


def head_of(graph: Graph, result: Node) -> Node | None:
    """Return the product with weights that computes the logits, if later operators keep positions separate.

    Args:
        graph: The graph of the model.
        result: The Result of the logits.
    """
    value = result.source()
    while True:
        node = graph.producer(value)
        if node.op in PRODUCTS:
            return None if node.op not in COMPRESSED_PRODUCTS and is_activation(graph, node.input(1)) else node
        active = [value for value in node.sources if is_activation(graph, value)]
        if node.op not in POSITIONWISE or len(active) != 1:
            return None
        value = active[0]


def selected_rows(graph: Graph, ids: Value) -> Iterator[int | None]:
    """Yield the numbers of rows of tables whose rows an input selects.

    Args:
        graph: The graph of the model.
        ids: The input, which may be reshaped or cast before.

    Yields:
        The number of a table; ``None`` if it is not fixed.
    """
    for use in graph.forward([ids], lambda use: use.node.outputs if use.node.op in LAYOUT | CASTS else ()):
        if use.node.op in _LOOKUPS and use.port == 1:
            yield fixed_size(use.node.source(), use.node.attributes.get("axis", 0))


def weight_bytes(graph: Graph) -> float:
    """Return the total bytes of constants of known size and type."""
    total = 0.0
    for node in graph.of_op("Constant"):
        value = node.outputs[0]
        total += element_bytes(value.element_type) * known_elements(value)
    return total


def is_compressed(graph: Graph) -> bool:
    """Return whether a matrix of weights is stored as integers."""
    values = (node.outputs[0] for node in graph.of_op("Constant"))
    return any(value.element_type in STORED and len(value.shape or ()) > 1 for value in values)
