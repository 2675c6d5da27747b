"""Small questions about values that several analyses ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.ir.graph import Graph, Node, Value

if TYPE_CHECKING:
    import numpy

__all__ = [
    "INTEGERS",
    "KEEPS_ORDER",
    "REALS",
    "SAME_ELEMENTS",
    "held_constant",
    "is_computed",
    "is_scalar",
    "is_wider",
    "keeps_elements",
    "one_number",
]

#: Operators that pass a tensor's elements on unchanged in place and order.
SAME_ELEMENTS = frozenset({"Convert", "Identity"})

#: Operators that keep a tensor's elements and their order, in another shape or type.
KEEPS_ORDER = SAME_ELEMENTS | {"Reshape", "Squeeze", "Unsqueeze"}

#: Types of whole numbers that are held in bytes of their own.
INTEGERS = frozenset({"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})

#: Types of other numbers.
REALS = frozenset({"bf16", "f16", "f32", "f64"})


#: How many bits of a number these types keep; one that keeps more holds all values of one that keeps less.
_WIDTHS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}


def is_wider(element_type: str, other: str) -> bool:
    """Whether ``element_type`` is one of numbers of more bits than those of ``other``."""
    return _WIDTHS.get(element_type, 0) > _WIDTHS.get(other, 64)


def is_scalar(value: Value) -> bool:
    """Whether all dimensions of ``value`` are 1, so that it scales a tensor as a whole."""
    return value.shape is not None and all(dimension == 1 for dimension in value.shape)


def is_computed(graph: Graph, value: Value | None) -> bool:
    """Whether ``value`` is no weight: a constant, as it stands, converted, dequantized, laid out or cut by a loop."""
    pending = [value]
    while pending:
        current = pending.pop()
        if current is None:
            continue
        node = graph.producer(current)
        if node.op in {"Multiply", "Subtract"}:
            pending += node.inputs
        elif node.op in SAME_ELEMENTS | {"Transpose", "Reshape", "DequantizeLinear", "Sliced"}:
            pending.append(node.inputs[0])
        elif node.op != "Constant":
            return True
    return False


def keeps_elements(node: Node) -> bool:
    """Whether ``node`` passes its elements on; a Convert does not where an integer or boolean is involved."""
    if node.op != "Convert":
        return node.op == "Identity"
    source = node.inputs[0]
    return source is not None and {source.element_type, node.outputs[0].element_type} <= REALS | {"dynamic"}


def held_constant(graph: Graph, value: Value | None) -> numpy.ndarray | None:
    """The constant whose elements ``value`` holds, converted or copied."""
    while value is not None:
        node = graph.producer(value)
        if not keeps_elements(node) and node.op not in {"Broadcast", "Reshape", "Unsqueeze"}:
            return graph.constant(value)
        value = node.inputs[0]
    return None


def one_number(graph: Graph, value: Value | None) -> float | None:
    """The value of a constant with one element, which may be stored in a narrower type, as exports in f16 do."""
    while value is not None and graph.producer(value).op == "Convert":
        source = graph.producer(value).inputs[0]
        if source is None or not is_wider(value.element_type, source.element_type):
            break
        value = source
    constant = graph.constant(value)
    return float(constant.item()) if constant is not None and constant.size == 1 else None
