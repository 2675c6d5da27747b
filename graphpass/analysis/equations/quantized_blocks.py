"""Read weights that are stored as whole numbers in blocks."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.values import fixed_size

#: Bits of stored numbers, by element type.
_BITS = {"i4": 4, "u4": 4, "i8": 8, "u8": 8}

#: MatMulNBits and QMoE compute with blocks of this size and its multiples by powers of 2.
SMALLEST_BLOCK = 16

#: Lets MatMulNBits round activations to 8 bits.
_ROUNDING_LEVEL = 4


@dataclass(frozen=True, slots=True)
class QuantizedBlocks:
    """Whole numbers in place of a weight, with a scale for each block of inputs.

    Attributes:
        scales: ``[outputs, blocks]``, flat or not; ``[.., blocks, outputs]`` if the weight has inputs first.
        zeros: Numbers that mean 0, likewise; ``None`` for 0, or the middle of the range if they are packed.
        bits: Bits of a number.
        size: Inputs of a block.
        is_packed: Whether numbers and zero points are bytes as of MatMulNBits: each row of outputs, and each row of
            zero points, fills whole bytes.
        rounds: Whether the model lets activations be rounded to 8 bits.
    """

    scales: Value
    zeros: Value | None
    bits: int
    size: int
    is_packed: bool
    rounds: bool

    @property
    def form(self) -> tuple[int, int, str]:
        """Return what one operator has in common for all weights."""
        return self.bits, self.size, self.scales.element_type


def packed_blocks(graph: Graph, product: Node) -> QuantizedBlocks:
    """Return the weight of a MatMulNBits.

    Raises:
        MissError: Its zero points are not whole numbers, its inputs are reordered, or blocks are not all full.
    """
    attributes = product.attributes
    bits, size, inputs = attributes.get("bits", 4), attributes["block_size"], attributes["K"]
    scales, zeros = product.source(2), product.input(3)
    if bits not in _BITS.values() or product.input(4) is not None:
        raise MissError(product, f"its weight has {bits} bits, or inputs in another order")
    if zeros is not None and zeros.element_type != "u8":
        raise MissError(product, f"its zero points are of type {zeros.element_type}")
    _require_blocks(graph, product, (product.source(1), scales, zeros), inputs, size)
    return QuantizedBlocks(
        scales, zeros, bits, size, is_packed=True, rounds=attributes.get("accuracy_level", 0) == _ROUNDING_LEVEL
    )


def dequantized_blocks(graph: Graph, node: Node, axis: int) -> QuantizedBlocks:
    """Return the weight of a DequantizeLinear.

    Args:
        graph: The graph.
        node: The DequantizeLinear.
        axis: Its axis of inputs, counted from the end.

    Raises:
        MissError: Its scales are not those of blocks of inputs, or its numbers have neither 4 nor 8 bits.
    """
    data, scales, zeros = node.source(0), node.source(1), node.input(2)
    rank, size, inputs = data.rank or 0, node.attributes.get("block_size", 0), fixed_size(data, axis)
    if data.element_type not in _BITS:
        raise MissError(node, f"weights are of type {data.element_type}")
    if not size or inputs is None or node.attributes.get("axis", 1) % rank != axis % rank:
        raise MissError(node, "scales are not those of blocks of inputs")
    _require_blocks(graph, node, (data, scales, zeros), inputs, size)
    return QuantizedBlocks(scales, zeros, _BITS[data.element_type], size, is_packed=False, rounds=False)


def _require_blocks(graph: Graph, node: Node, stored: tuple[Value | None, ...], inputs: int, size: int) -> None:
    if inputs % size or size < SMALLEST_BLOCK or size & (size - 1):
        raise MissError(node, f"blocks of {size} are not a power of 2 from {SMALLEST_BLOCK} on that divides {inputs}")
    if any(graph.producer(value).op != "Constant" for value in stored if value is not None):
        raise MissError(node, "weights, scales or zero points are computed")
