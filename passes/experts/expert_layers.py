"""What the forms have in common in which experts of a mixture are computed: layers of them, and small questions."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from graphpass.dialects.openvino.rewrite import fold
from graphpass.ir.operators import KEEPS_ORDER

if TYPE_CHECKING:
    import openvino

__all__ = [
    "EXPERT_LIMIT",
    "SPREAD",
    "ExpertLayer",
    "Step",
    "behind",
    "is_plain",
    "is_weight",
    "is_zero",
    "key_of",
    "number_of",
    "part_of",
    "readers",
    "same",
    "stored_weight",
    "values_of",
]

#: Operators that lay numbers out in their order, and repeat them along further axes.
SPREAD = KEEPS_ORDER | {"Broadcast"}

#: Experts of more operators are not looked at.
EXPERT_LIMIT = 64

#: What an expert may compute of each of its tokens alone.
_UNARY = frozenset({"Convert", "Gelu", "HSwish", "Mish", "Relu", "Sigmoid", "SoftPlus", "Swish", "Tanh"})
_BINARY = frozenset({"Add", "Multiply", "Subtract"})


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of an expert: what it reads are earlier steps by their places, the tokens (-1), or constants."""

    node: openvino.Node
    reads: tuple[int | openvino.Node, ...]

    @property
    def form(self) -> tuple[object, ...]:
        """What is the same in all experts."""
        reads = tuple(
            read
            if isinstance(read, int)
            else (str(read.get_output_shape(0)), str(stored_weight(read).get_element_type()))
            for read in self.reads
        )
        return self.node.get_type_name(), str(sorted(self.node.get_attributes().items())), reads


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The experts of one layer.

    Attributes:
        tokens: ``[tokens, hidden]``.
        chosen: The experts of each token, ``[tokens, k]``.
        weights: How much each counts, ``[tokens, k]``.
        bodies: What each expert computes, in their order.
        total: The sum of all of them, ``[tokens, hidden]``.
    """

    tokens: openvino.Output
    chosen: openvino.Output
    weights: openvino.Output
    bodies: tuple[tuple[Step, ...], ...]
    total: openvino.Output


def is_plain(node: openvino.Node, sources: list[openvino.Output]) -> bool:
    """Whether ``node`` computes each token by itself, with constants that can be joined."""
    kind = node.get_type_name()
    constants = [value for value in node.input_values() if is_weight(value)]
    if kind == "MatMul":
        second = constants == node.input_values()[1:] and len(constants[0].get_shape()) == 2 if constants else False
        return second and len(sources) == 1 and not node.get_attributes()["transpose_a"]
    if kind in _BINARY:
        width = node.get_output_partial_shape(0)[1]
        shapes = [list(value.get_shape()) for value in constants]
        return bool(sources) and width.is_static and all(shape == [width.get_length()] for shape in shapes)
    return kind in _UNARY and len(sources) == len(node.input_values()) == 1


def stored_weight(weight: openvino.Node) -> openvino.Node:
    """A weight without the conversion of its elements."""
    node: openvino.Node = weight.input_value(0).get_node() if weight.get_type_name() == "Convert" else weight
    return node


def is_weight(value: openvino.Output) -> bool:
    """Whether it is a constant, perhaps behind a conversion of its elements."""
    return bool(stored_weight(value.get_node()).get_type_name() == "Constant")


def behind(value: openvino.Output, kinds: AbstractSet[str]) -> openvino.Output:
    """What ``value`` was before operators of these kinds, each of which reads it as its first input."""
    while value.get_node().get_type_name() in kinds:
        value = value.get_node().input_value(0)
    return value


def readers(value: openvino.Output, kind: str) -> list[openvino.Node]:
    """The operators of this kind that read ``value``, laid out and repeated in whatever way."""
    found, pending = [], [value]
    while pending:
        for reader in pending.pop().get_target_inputs():
            node = reader.get_node()
            if node.get_type_name() == kind:
                found.append(node)
            elif node.get_type_name() in SPREAD:
                pending.append(node.output(0))
    return found


def is_zero(value: openvino.Output) -> bool:
    """Whether it is 0 everywhere."""
    return number_of(behind(value, {"Broadcast"})) == 0


def values_of(value: openvino.Output) -> list[int] | None:
    """The numbers that it always holds; ``None`` where they depend on what the model is fed."""
    found = fold(value)
    return None if found is None else [int(one) for one in numpy.ravel(found)]


def number_of(value: openvino.Output) -> int | None:
    """The one whole number that it always holds."""
    found = fold(value)
    if found is None or found.size != 1 or found.ravel()[0] != int(found.ravel()[0]):
        return None
    return int(found.ravel()[0])


def part_of(value: openvino.Output) -> int | None:
    """A number, or one that is split off a vector of as many numbers as there are parts."""
    source = behind(value, {"Squeeze", "Convert"})
    if source.get_node().get_type_name() not in {"Split", "VariadicSplit"}:
        return number_of(value)
    whole = values_of(source.get_node().input_value(0))
    parts = source.get_node().outputs()
    return whole[source.get_index()] if whole is not None and len(whole) == len(parts) else None


def key_of(value: openvino.Output) -> str:
    """A name that no other value has."""
    return f"{value.get_node().get_name()}.{value.get_index()}"


def same(left: openvino.Output, right: openvino.Output) -> bool:
    """Whether both are the same value."""
    return key_of(left) == key_of(right)
