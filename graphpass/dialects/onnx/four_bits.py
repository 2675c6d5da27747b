"""Quantize weights of products to 4 bits in blocks, in the format of MatMulNBits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from graphpass.dialects.packed_bits import unpacked
from graphpass.ir.types import is_fixed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.graph import Graph, Node, Value

#: Inputs of a product that share a scale and a zero point, as in the q4 models for transformers.js.
BLOCK = 32

#: Largest number of elements of a weight to quantize.
_MOST = 2**31


@dataclass(frozen=True, slots=True, eq=False)
class FourBits:
    """A weight ``[inputs, outputs]``, quantized in blocks along its inputs.

    Attributes:
        packed: u8 ``[outputs, blocks, BLOCK / 2]``, with the first of two values in the lower bits.
        scales: f32 ``[outputs, blocks]``.
        zeros: u8 ``[outputs, (blocks + 1) / 2]``, zero points, packed in the same way.
        inputs: Number of inputs; the last block is padded.
    """

    packed: NDArray[numpy.uint8]
    scales: NDArray[numpy.float32]
    zeros: NDArray[numpy.uint8]
    inputs: int

    @classmethod
    def of(cls, weight: NDArray[numpy.float32]) -> FourBits:
        """Quantize a weight by ONNX Runtime's quantizer.

        Args:
            weight: f32 ``[inputs, outputs]``.

        Returns:
            The quantized weight; the last block is padded with zeros.
        """
        from onnxruntime.capi._pybind_state import quantize_matmul_4bits

        inputs, outputs = weight.shape
        blocks = -(-inputs // BLOCK)
        padded = numpy.zeros((blocks * BLOCK, outputs), numpy.float32)
        padded[:inputs] = weight
        made = cls(
            numpy.zeros((outputs, blocks, BLOCK // 2), numpy.uint8),
            numpy.zeros((outputs, blocks), numpy.float32),
            numpy.zeros((outputs, (blocks + 1) // 2), numpy.uint8),
            inputs,
        )
        quantize_matmul_4bits(made.packed, padded, made.scales, made.zeros, BLOCK, outputs, inputs, False)
        return made

    def widened(self) -> NDArray[numpy.float32]:
        """Return the dequantized weight ``[inputs, outputs]``."""
        outputs, blocks = self.scales.shape
        zeros = unpacked(self.zeros)[:, :blocks, None].astype(numpy.float32)
        numbers = unpacked(self.packed).astype(numpy.float32) - zeros
        wide: NDArray[numpy.float32] = (numbers * self.scales[:, :, None]).reshape(outputs, -1)[:, : self.inputs].T
        return numpy.ascontiguousarray(wide)


@dataclass(frozen=True, slots=True)
class FourBitProduct:
    """The weight of a MatMul that can be quantized.

    Attributes:
        weight: The constant, of rank 2.
        is_transposed: Whether the constant is ``[outputs, inputs]``.
    """

    weight: Value
    is_transposed: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        """Return the number of inputs and the number of outputs."""
        first, second = (int(str(size)) for size in self.weight.shape or ())
        return (second, first) if self.is_transposed else (first, second)

    def read(self, graph: Graph) -> NDArray[numpy.float32]:
        """Return the weight ``[inputs, outputs]``.

        Raises:
            FileNotFoundError: The file with its elements does not exist.
        """
        constant = graph.constant(self.weight, _MOST)
        assert constant is not None
        wide: NDArray[numpy.float32] = constant.astype(numpy.float32)
        return wide.T if self.is_transposed else wide


def four_bit_product(graph: Graph, product: Node) -> FourBitProduct | None:
    """Return the weight of a MatMul; ``None`` unless a constant in f32 or f16.

    Args:
        graph: Graph of the MatMul.
        product: The MatMul; its second input may be a weight after Transposes of both axes and Converts.
    """
    value, is_transposed = product.source(1), False
    while (node := graph.producer(value)).op in {"Transpose", "Convert"}:
        if node.op == "Transpose" and node.attributes.get("order") != (1, 0):
            return None
        is_transposed ^= node.op == "Transpose"
        value = node.source()
    is_matrix = value.rank == 2 and is_fixed(value.shape)
    is_weight = node.op == "Constant" and is_matrix and value.element_type in {"f16", "f32"}
    return FourBitProduct(value, is_transposed) if is_weight else None


def packed_weights(graph: Graph) -> Iterator[NDArray[numpy.uint8]]:
    """Yield 4-bit weights of MatMulNBits, u8 ``[outputs, blocks, bytes of a block]``."""
    for node in graph.of_op("MatMulNBits"):
        constant = graph.constant(node.source(1), _MOST) if node.attributes.get("bits", 4) == 4 else None
        if constant is not None:
            yield constant
