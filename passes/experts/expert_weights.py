"""Write the weights of experts in the layout of ONNX Runtime's MoE and QMoE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy
from onnx import numpy_helper

from graphpass.analysis.experts.products import Product
from graphpass.dialects.onnx.new_weights import NewWeights
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.onnx.tensors import element_code, external_data, is_external, nbytes
from graphpass.dialects.packed_bits import packed, unpacked
from graphpass.ir.graph import Value
from graphpass.ir.writer import Handle

Array: TypeAlias = "numpy.ndarray[Any, Any]"

Products: TypeAlias = Sequence[tuple[Product, ...]]
"""Products with joined columns for each expert, or one entry with products of all experts."""

_TYPES = {"f16": "<f2", "f32": "<f4"}

_HALF_BYTE = 4


@dataclass(frozen=True, slots=True)
class Laid:
    """Operands of one product of all experts.

    Attributes:
        weights: ``[experts, outputs, inputs]``; if quantized, ``[experts, outputs, inputs * bits / 8]``.
        biases: ``[experts, outputs]``.
        scales: ``[experts, outputs, blocks]``; ``None`` if weights are not quantized.
        zeros: Zero points, two of 4 bits in a byte; ``None`` for the middle of the range.
    """

    weights: Handle
    biases: Handle | None
    scales: Handle | None = None
    zeros: Handle | None = None


@dataclass(frozen=True, slots=True)
class _Group:
    """One product of all ``count`` experts."""

    experts: Products
    count: int
    name: str

    @property
    def products(self) -> list[Product]:
        return [product for parts in self.experts for product in parts]


class ExpertWeights:
    """Writes weights in a new layout, expert by expert.

    Attributes:
        count: Number of weights written.
        size: Size of the weights written, in bytes.
        read: Indices of the constants that were read.
    """

    def __init__(self, rewriter: OnnxRewriter, weights: NewWeights, path: Path | None) -> None:
        """Read weights of the model file ``path``, and write to ``weights``."""
        self.count = self.size = 0
        self.read: set[int] = set()
        self._rewriter, self._weights, self._path = rewriter, weights, path
        self._inline: dict[Value, Array] = {}

    def lay(self, experts: Products, count: int, name: str, block: int) -> Laid:
        """Write the operands of one product of all experts.

        Args:
            experts: The products; the columns of each entry are joined.
            count: Number of experts.
            name: Beginning of the names of the operands.
            block: Number of inputs in a written block, a divisor of the stored block size; 0 if not quantized.

        Returns:
            The operands of all experts, in order.
        """
        self._inline = {}
        first, group = experts[0][0], _Group(experts, count, name)
        real, scaled = first.element_type, [product.blocks for product in group.products if product.blocks is not None]
        stacked = [product.weight for product in group.products]
        added = [product.bias for product in group.products if product.bias is not None]
        biases = self._write(group, "biases", real, 0, added, self._bias) if added else None
        if first.blocks is None:
            return Laid(self._write(group, "weights", real, first.inputs, stacked, self._weight), biases)
        blocks, whole = first.inputs // block, f"u{first.blocks.bits}"
        weights = self._write(group, "weights", whole, first.inputs, stacked, self._numbers)
        scales = self._write(
            group,
            "scales",
            real,
            blocks,
            [block.scales for block in scaled],
            lambda *place: _spread(self._scales(*place), blocks),
        )
        points = [block.zeros for block in scaled if block.zeros is not None]
        if not points and all(_middle(product) == 1 << (first.blocks.bits - 1) for product in group.products):
            return Laid(weights, biases, scales)
        zeros = self._write(group, "zeros", whole, blocks, points, lambda *place: _spread(self._zeros(*place), blocks))
        return Laid(weights, biases, scales, zeros)

    def _write(
        self,
        group: _Group,
        part: str,
        kind: str,
        columns: int,
        values: list[Value],
        read: Callable[[Product, int], Array],
    ) -> Handle:
        """Return a new weight with ``columns`` elements per row, or a vector for 0."""
        self.read |= {value.node for value in values}
        is_packed, rows = kind == "u4", len(group.experts[0]) * group.experts[0][0].outputs
        shape = [group.count, rows, *([-(-columns // 2) if is_packed else columns] if columns else [])]
        blocks = (_expert_rows(group, number, read, is_packed=is_packed) for number in range(group.count))
        is_stored = any(is_external(self._rewriter.graph.producer(value).native) for value in values)
        made = self._weights.written(element_code("u8" if is_packed else kind), shape, blocks, external=is_stored)
        self.count += 1
        self.size += nbytes(made)
        return self._weights.declare(self._rewriter, made, f"{group.name}_{part}")

    def _weight(self, product: Product, expert: int) -> Array:
        """Return the weight ``[outputs, inputs]`` of one expert."""
        return _rows(product, self._reals(product, product.weight, expert, product.inputs * _width(product)))

    def _bias(self, product: Product, expert: int) -> Array:
        assert product.bias is not None
        return self._reals(product, product.bias, expert, _width(product))[slice(*product.columns)]

    def _numbers(self, product: Product, expert: int) -> Array:
        """Return the quantized weight ``[outputs, inputs]`` of one expert, as unsigned integers."""
        return _rows(product, self._whole(product, product.weight, expert, product.inputs))

    def _scales(self, product: Product, expert: int) -> Array:
        assert product.blocks is not None
        blocks = product.inputs // product.blocks.size
        return _rows(product, self._reals(product, product.blocks.scales, expert, blocks * _width(product)))

    def _zeros(self, product: Product, expert: int) -> Array:
        assert product.blocks is not None
        blocks, zeros = product.inputs // product.blocks.size, product.blocks.zeros
        if zeros is None:
            return numpy.full([product.outputs, blocks], _middle(product), numpy.uint8)
        # Rows of packed zero points fill whole bytes.
        padded = blocks + blocks % 2 if product.blocks.is_packed and product.blocks.bits == _HALF_BYTE else blocks
        return _rows(product, self._whole(product, zeros, expert, padded))[:, :blocks]

    def _reals(self, product: Product, value: Value, expert: int, count: int) -> Array:
        """Return ``count`` floating-point elements of one expert."""
        kind = numpy.dtype(_TYPES[value.element_type])
        first = expert * count if product.is_stacked else 0
        return self._bytes(value)[first * kind.itemsize : (first + count) * kind.itemsize].view(kind)

    def _whole(self, product: Product, value: Value, expert: int, columns: int) -> Array:
        """Return ``columns`` elements for each output of one expert, as unsigned integers."""
        assert product.blocks is not None
        bits, count = product.blocks.bits, columns * _width(product)
        first = expert * count if product.is_stacked else 0
        stored = self._bytes(value)[first * bits // 8 : -(-(first + count) * bits // 8)]
        if bits == _HALF_BYTE:
            start = first % 2
            stored = unpacked(stored)[start : start + count]
        return stored ^ (1 << (bits - 1)) if value.element_type.startswith("i") else stored

    def _bytes(self, value: Value) -> Array:
        """Return the bytes of a constant; those of a data file are memory-mapped."""
        tensor = self._rewriter.graph.producer(value).native
        if is_external(tensor):
            data = external_data(tensor, self._path)
            return numpy.memmap(data.file, numpy.uint8, "r", data.offset, (data.length,))
        if value not in self._inline:
            raw = tensor if tensor.HasField("raw_data") else numpy_helper.from_array(numpy_helper.to_array(tensor))
            self._inline[value] = numpy.frombuffer(raw.raw_data, numpy.uint8)
        return self._inline[value]


def _expert_rows(group: _Group, number: int, read: Callable[[Product, int], Array], *, is_packed: bool) -> bytes:
    """Return the bytes of one expert's rows, interleaved from all parts."""
    parts = [read(product, number) for product in group.experts[number if len(group.experts) > 1 else 0]]
    rows = parts[0] if len(parts) == 1 else numpy.stack(parts, 1).reshape(-1, *parts[0].shape[1:])
    return numpy.ascontiguousarray(packed(rows) if is_packed else rows).tobytes()


def block_of(experts: Products) -> int:
    """Return a block size smaller than the inputs of each product; 0 without blocks."""
    products = [product for parts in experts for product in parts]
    size = products[0].blocks.size if products[0].blocks is not None else 0
    return size // 2 if any(product.inputs == size for product in products) else size


def _width(product: Product) -> int:
    """Return the number of outputs in the stored weight."""
    shape = product.weight.shape or ()
    is_packed = product.blocks is not None and product.blocks.is_packed
    width = shape[0] if is_packed else shape[-2] if product.is_turned else shape[-1]
    assert isinstance(width, int)
    return width


def _rows(product: Product, stored: Array) -> Array:
    """Return the outputs that a product reads, as rows."""
    width = _width(product)
    rows = stored.reshape(width, -1) if product.is_turned else stored.reshape(-1, width).T
    return rows[slice(*product.columns)]


def _middle(product: Product) -> int:
    """Return the default zero point."""
    assert product.blocks is not None
    is_signed = product.weight.element_type.startswith("i")
    return 1 << (product.blocks.bits - 1) if product.blocks.is_packed or is_signed else 0


def _spread(rows: Array, blocks: int) -> Array:
    """Return ``rows`` with repeated columns, ``blocks`` in all, for smaller blocks."""
    return numpy.repeat(rows, blocks // rows.shape[1], 1)
