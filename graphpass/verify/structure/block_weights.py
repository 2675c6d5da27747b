"""Symbolic definitions of com.microsoft's MatMulNBits and GatherBlockQuantized, and of weights in blocks.

Source: docs/ContribOperators.md of ONNX Runtime; default zero points as its CPU kernels (1.31) compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphpass.analysis.equations.quantized_blocks import ROUNDING_LEVEL
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.elements import Element, Elements, Index, Rule, Steps, UnknownError
from graphpass.analysis.symbolic.expressions import ZERO, Expr, number
from graphpass.analysis.symbolic.places import index_along
from graphpass.dialects.attributes import native_attributes
from graphpass.ir.graph import Node, Value
from graphpass.ir.values import REALS
from graphpass.verify.structure.tensors import DefinedTensors, closed, definitions_of


@dataclass(frozen=True, slots=True)
class BlockWeight:
    """A weight ``[.., inputs]`` in bytes, with scales and zero points of blocks of inputs.

    Attributes:
        stored: The bytes, u8.
        scales: Scales, ``[.., blocks]`` or flat.
        zeros: Zero points, in bytes or real; ``None`` for the middle of the range.
        bits: Bits of an integer, 4 or 8.
        rows: Sizes of the axes before the inputs.
        inputs: Number of inputs, padding of the last block included.
        block: Number of inputs of a block.
    """

    stored: Value
    scales: Value
    zeros: Value | None
    bits: int
    rows: tuple[int, ...]
    inputs: int
    block: int

    def at(self, element: Element, row: Index, place: Expr) -> Steps:
        """Return an element of the dequantized weight.

        Args:
            element: The element of the operator with the weight.
            row: Index of the row, one expression for each of ``rows``.
            place: Index of the input.

        Raises:
            UnknownError: Weight or zero points are not constants of 4 or 8 bits.
        """
        tensors = element.elements
        assert isinstance(tensors, DefinedTensors)
        blocks = -(-self.inputs // self.block)
        block, within = ex.floor_divide(place, number(self.block)), ex.modulo(place, number(self.block))
        whole = tensors.packed(self.stored, self.bits, (*self.rows, blocks, self.block), (*row, block, within))
        scale = yield self.scales, self._of_block(self.scales, row, block, blocks)
        origin: Expr = number(1 << (self.bits - 1))
        if self.zeros is not None and self.zeros.element_type in REALS:
            origin = yield self.zeros, self._of_block(self.zeros, row, block, blocks)
        elif self.zeros is not None:
            origin = self._origin(tensors, self.zeros, row, block, blocks)
        return ex.multiply(ex.subtract(whole, origin), scale)

    def _origin(self, tensors: DefinedTensors, zeros: Value, row: Index, block: Expr, blocks: int) -> Expr:
        """Return the zero point of a block."""
        if zeros.rank == len(self.rows) > 1:
            return tensors.packed(zeros, self.bits, self.rows, row)
        # OpenVINO's frontend reads a row's padding to whole bytes, too; the lowering of QMoE does not.
        is_padded = self.bits == 4 and len(self.rows) == 1
        return tensors.packed(zeros, self.bits, (*self.rows, blocks + (blocks % 2 if is_padded else 0)), (*row, block))

    def _of_block(self, value: Value, row: Index, block: Expr, blocks: int) -> Index:
        """Return the index of a block's scale or zero point.

        Raises:
            UnknownError: The tensor has another number of axes.
        """
        index = (*row, block)
        if value.rank == len(index):
            return index
        if value.rank == len(row) and blocks == 1:
            return row
        if value.rank == 1:
            flat: Expr = ZERO
            for place, size in zip(index, (*self.rows, blocks), strict=True):
                flat = ex.add(ex.multiply(flat, number(size)), place)
            return (flat,)
        raise UnknownError(f"{value.name} has {value.rank} axes")


@closed
def _product(element: Element) -> Steps:
    """Return an element of MatMulNBits: a product with a weight ``[N, K]``.

    Raises:
        UnknownError: Activations are rounded to 8 bits, inputs are reordered, or the weight cannot be read.
    """
    node, attributes = element.node, native_attributes(element.node)
    if node.input(4) is not None:
        raise UnknownError("g_idx has no definition")
    inputs, block = int(attributes["K"]), int(attributes["block_size"])
    whole = -(-inputs // block) * block
    weight = BlockWeight(
        node.source(1),
        node.source(2),
        node.input(3),
        int(attributes.get("bits", 4)),
        (int(attributes["N"]),),
        whole,
        block,
    )
    *leading, row = element.index
    bound = index_along("k", number(inputs))
    read = yield node.source(), (*leading, bound)
    factor = yield from weight.at(element, (row,), bound)
    if attributes.get("accuracy_level", 0) == ROUNDING_LEVEL:
        permit_rounding(element, factor)
    result = definitions_of(element).sum(ex.multiply(read, factor), bound)
    return result if node.input(5) is None else ex.add(result, (yield node.source(5), (row,)))


def permit_rounding(element: Element, weight: Expr) -> None:
    """Check that the reference permits kernels to round the activations of a product, too.

    Args:
        element: The element of the operator.
        weight: An element of the product's weight, as an expression of its own index variables.

    Raises:
        UnknownError: The operator is of the candidate, and the reference does not permit it.
    """
    tensors = element.elements
    assert isinstance(tensors, DefinedTensors)
    permitted = tensors.definitions.rounded_products
    if not tensors.is_candidate:
        permitted.add(weight)
    elif weight not in permitted:
        raise UnknownError("kernels may round activations to 8 bits, which the reference does not permit")


def _rows(element: Element) -> Steps:
    """Return an element of GatherBlockQuantized: a row of a weight ``[rows, inputs]``.

    Raises:
        UnknownError: The weight is not in bytes, or not quantized along its last axis.
    """
    node, attributes = element.node, native_attributes(element.node)
    data, sizes = node.source(0), node.source(0).shape or ()
    bits, axis = int(attributes.get("bits", 4)), int(attributes.get("quantize_axis", 1))
    fixed = tuple(size for size in sizes if isinstance(size, int))
    is_matrix = len(fixed) == len(sizes) == 2
    if data.element_type != "u8" or not is_matrix or axis % 2 != 1 or attributes.get("gather_axis", 0):
        raise UnknownError("expected a matrix in bytes, quantized along its last axis")
    *leading, place = element.index
    block = int(attributes.get("block_size", 128))
    weight = BlockWeight(data, node.source(2), node.input(3), bits, fixed[:1], fixed[1] * 8 // bits, block)
    row = yield node.source(1), tuple(leading)
    return (yield from weight.at(element, (row,), place))


RULES: dict[str, Rule] = {"GatherBlockQuantized": _rows, "MatMulNBits": _product}


def _size_of_rows(elements: Elements, node: Node, axis: int) -> Expr | None:
    """Return a size of the result: those of the indices, then the number of inputs."""
    indices, last = elements.shape(node.source(1)), elements.shape(node.source(0))[-1]
    bits = int(native_attributes(node).get("bits", 4)) if node.source(0).element_type == "u8" else 8
    return indices[axis] if axis < len(indices) else ex.multiply(last, number(8 // bits))


SIZES: dict[str, Callable[[Elements, Node, int], Expr | None]] = {"GatherBlockQuantized": _size_of_rows}
