"""Read weights that are quantized in blocks of inputs."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import MissError
from graphpass.ir.values import fixed_size

#: Bits of an element by element type.
_BITS = {"i4": 4, "u4": 4, "i8": 8, "u8": 8}

#: MatMulNBits and QMoE support blocks of this size times a power of 2.
SMALLEST_BLOCK = 16

#: The ``accuracy_level`` at which MatMulNBits may round activations to 8 bits.
ROUNDING_LEVEL = 4

#: Bits of weights for which QMoE's kernel always rounds activations.
ROUNDING_BITS = 8


@dataclass(frozen=True, slots=True)
class QuantizedBlocks:
    """A weight in integers, with a scale for each block of inputs.

    Attributes:
        scales: ``[outputs, blocks]`` or flat; ``[.., blocks, outputs]`` if the weight has inputs first.
        zeros: Zero points, with the axes of ``scales``; ``None`` for 0, or for the middle of the range if packed.
        bits: Bits of an integer, 4 or 8.
        size: Number of inputs of a block.
        is_packed: Whether integers and zero points are packed in bytes as in MatMulNBits, which pads the row of each
            output to whole bytes.
        rounds: Whether the model allows rounding activations to 8 bits.
    """

    scales: Value
    zeros: Value | None
    bits: int
    size: int
    is_packed: bool
    rounds: bool

    @property
    def form(self) -> tuple[int, int, str]:
        """Return bits, block size and type of scales, which all weights of an operator share."""
        return self.bits, self.size, self.scales.element_type


def packed_blocks(graph: Graph, product: Node) -> QuantizedBlocks:
    """Return the weight of a MatMulNBits.

    Args:
        graph: The graph.
        product: The MatMulNBits.

    Raises:
        MissError: Zero points are not integers, inputs are reordered, or blocks do not divide the inputs.
    """
    attributes = product.attributes
    bits, size, inputs = attributes.get("bits", 4), attributes["block_size"], attributes["K"]
    scales, zeros = product.source(2), product.input(3)
    if bits not in _BITS.values() or product.input(4) is not None:
        raise MissError(product, f"its weight has {bits} bits, expected 4 or 8, or has input g_idx")
    if zeros is not None and zeros.element_type != "u8":
        raise MissError(product, f"expected zero points of type u8, got {zeros.element_type}")
    _require_blocks(graph, product, (product.source(1), scales, zeros), inputs, size)
    return QuantizedBlocks(
        scales, zeros, bits, size, is_packed=True, rounds=attributes.get("accuracy_level", 0) == ROUNDING_LEVEL
    )


def dequantized_blocks(graph: Graph, node: Node, axis: int) -> QuantizedBlocks:
    """Return the weight of a DequantizeLinear.

    Args:
        graph: The graph.
        node: The DequantizeLinear.
        axis: Index of its axis of inputs, from the end.

    Raises:
        MissError: Scales are not per block of inputs, or integers have neither 4 nor 8 bits.
    """
    data, scales, zeros = node.source(0), node.source(1), node.input(2)
    rank, size, inputs = data.rank or 0, node.attributes.get("block_size", 0), fixed_size(data, axis)
    if data.element_type not in _BITS:
        raise MissError(node, f"expected weights of type i4, u4, i8 or u8, got {data.element_type}")
    if not size or inputs is None or node.attributes.get("axis", 1) % rank != axis % rank:
        raise MissError(node, "expected scales per block along the axis of inputs")
    _require_blocks(graph, node, (data, scales, zeros), inputs, size)
    return QuantizedBlocks(scales, zeros, _BITS[data.element_type], size, is_packed=False, rounds=False)


def _require_blocks(graph: Graph, node: Node, stored: tuple[Value | None, ...], inputs: int, size: int) -> None:
    if inputs % size or size < SMALLEST_BLOCK or size & (size - 1):
        raise MissError(
            node, f"blocks of {size} are not a power of 2, at least {SMALLEST_BLOCK}, that divides {inputs}"
        )
    if any(graph.producer(value).op != "Constant" for value in stored if value is not None):
        raise MissError(node, "weights, scales or zero points are computed")
