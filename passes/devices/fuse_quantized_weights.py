"""The pass `fuse-quantized-weights`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy

from graphpass.analysis.equations.quantized_blocks import QuantizedBlocks, dequantized_blocks
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.rewriter import OnnxRewriter
from graphpass.dialects.onnx.walk import opset_of
from graphpass.dialects.packed_bits import packed
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.ir.graph import Graph, Node, Value
from graphpass.ir.miss import Miss, MissError, or_miss
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle

_DOMAIN = "com.microsoft"

#: The first opset with blocks in DequantizeLinear.
_FIRST_OPSET = 21

Activations = Literal["f32", "int8"]

#: MatMulNBits's accuracy_level by number of bits, if it is faster than DequantizeLinear and MatMul.
_LEVELS: dict[Activations, dict[int, int]] = {"f32": {4: 1}, "int8": {4: 4, 8: 4}}


@dataclass(frozen=True)
class FuseQuantizedWeights(Pass[OnnxModel]):
    """Fuse dequantization of 4-bit and 8-bit weights into MatMulNBits and GatherBlockQuantized.

    ONNX Runtime fuses DequantizeLinear and MatMul with weights ``[inputs, outputs]`` itself when it loads a model, and
    rounds activations to int8. It does not fuse weights ``[outputs, inputs]``, PyTorch's layout, and embedding tables:
    each step dequantizes all of them. These weights already have the layout of the fused operators. Unsigned weights
    are not copied; signed weights are rewritten as unsigned, with a zero point.

    Milliseconds, weight of 4096 x 1024 in blocks of 32, one token (ONNX Runtime 1.32, CPU, 2 cores):

    | | 4 bits | 8 bits |
    |---|---|---|
    | f32 weights | 0.5 | 0.5 |
    | DequantizeLinear, Transpose, MatMul | 43 | 26 |
    | MatMulNBits, activations in f32 | 0.2 | 26 |
    | MatMulNBits, activations in int8 | 0.05 | 0.09 |

    Options:
        activations: With ``int8``, activations are rounded to 8 bits in blocks, as in ONNX Runtime's own fusion; the
            error is 0.5 % of the largest element of a product. With ``f32``, products equal those of DequantizeLinear,
            and products with 8-bit weights are unchanged, because MatMulNBits is not faster.

    Shapes:
        weight ``[outputs, inputs]``, scales and zero points ``[outputs, inputs / block]``; embedding table
        ``[vocabulary, hidden]``, with scales and zero points ``[vocabulary, hidden / block]``

    Before:
        MatMul(x, Transpose(DequantizeLinear(weight, scales, zero points, block_size)))
        Gather(DequantizeLinear(table, scales, zero points, block_size), ids)
    After:
        MatMulNBits(x, weight, scales, zero points)
        GatherBlockQuantized(table, ids, scales, zero points)
    """

    name = "fuse-quantized-weights"
    dialect = "onnx"

    activations: Activations = "f32"

    def run(self, model: OnnxModel) -> Done | Skipped:
        graph = model.graph
        if opset_of(model.proto) < _FIRST_OPSET or not any(graph.of_op("DequantizeLinear")):
            return Skipped("no weight is dequantized in blocks")
        rewriter = model.rewriter()
        assert isinstance(rewriter, OnnxRewriter)
        fusion, notes = _Fusion(rewriter, _LEVELS[self.activations]), []
        for node in graph.of_op("MatMul", "Gather"):
            quantized = _fusable(graph, node)
            miss = (
                quantized
                if isinstance(quantized, Miss)
                else None
                if quantized is None
                else fusion.fuse(node, quantized)
            )
            if miss is not None:
                notes.append(f"{node.op} at {node.name} stays unchanged: {miss}")
        rewriter.finish()
        statistics = {"products fused": fusion.products, "tables fused": fusion.tables}
        return Done(statistics | {"weights rewritten": fusion.written}, tuple(notes))


@dataclass(frozen=True)
class _Quantized:
    """A weight ``[rows, columns]``, quantized in blocks along the columns."""

    data: Value
    rows: int
    columns: int
    blocks: QuantizedBlocks

    @property
    def count(self) -> int:
        return self.columns // self.blocks.size

    @property
    def is_signed(self) -> bool:
        return self.data.element_type.startswith("i")


def _fusable(graph: Graph, node: Node) -> _Quantized | Miss | None:
    """Return the quantized weight that ``node`` reads, if any."""
    if node.op == "Gather":
        dequantized = graph.producer(node.source())
        is_wanted = node.attributes.get("axis") == 0
    else:
        transpose = graph.producer(node.source(1))
        is_wanted = transpose.op == "Transpose" and transpose.attributes.get("order") == (1, 0)
        dequantized = graph.producer(transpose.source()) if is_wanted else transpose
    if not is_wanted or dequantized.op != "DequantizeLinear" or dequantized.outputs[0].rank != 2:
        return None
    return _read(graph, dequantized)


@or_miss
def _read(graph: Graph, node: Node) -> _Quantized:
    data, blocks = node.source(), dequantized_blocks(graph, node, -1)
    rows, columns = fixed_size(data, 0), fixed_size(data, 1)
    if rows is None or columns is None or blocks.scales.element_type != "f32":
        raise MissError(node, f"weights {data.element_type} are dequantized to {blocks.scales.element_type}, not f32")
    return _Quantized(data, rows, columns, blocks)


class _Fusion:
    def __init__(self, rewriter: OnnxRewriter, levels: dict[int, int]) -> None:
        self.products = self.tables = self.written = 0
        self._rewriter, self._levels = rewriter, levels
        self._made: dict[tuple[Value, str], Any] = {}

    def fuse(self, node: Node, weight: _Quantized) -> Miss | None:
        """Replace ``node`` by the fused operator.

        Returns:
            The reason if it is unchanged.
        """
        if node.op == "MatMul" and weight.blocks.bits not in self._levels:
            return Miss(node, f"MatMulNBits is not faster with {weight.blocks.bits} bits and activations in f32")
        if any(self._stored(value) is None for value in (weight.data, weight.blocks.zeros) if value is not None):
            return Miss(node, "weights or zero points are not initializers")
        (self._product if node.op == "MatMul" else self._table)(node, weight)
        return None

    def _product(self, node: Node, weight: _Quantized) -> None:
        self.products += 1
        made = self._rewriter.under(node.name).op(
            "MatMulNBits",
            node.source(0),
            self._once(weight, "packed", self._packed),
            weight.blocks.scales,
            self._once(weight, "zeros", self._packed_zeros),
            domain=_DOMAIN,
            K=weight.columns,
            N=weight.rows,
            bits=weight.blocks.bits,
            block_size=weight.blocks.size,
            accuracy_level=self._levels[weight.blocks.bits],
        )
        self._rewriter.replace(node.outputs[0], made)

    def _table(self, node: Node, weight: _Quantized) -> None:
        self.tables += 1
        is_byte = weight.blocks.bits == 8
        made = self._rewriter.under(node.name).op(
            "GatherBlockQuantized",
            self._once(weight, "bytes", self._bytes) if is_byte else weight.data,
            node.source(1),
            weight.blocks.scales,
            self._once(weight, "zeros", self._packed_zeros) if is_byte else weight.blocks.zeros,
            domain=_DOMAIN,
            bits=weight.blocks.bits,
            block_size=weight.blocks.size,
            gather_axis=0,
            quantize_axis=1,
        )
        self._rewriter.replace(node.outputs[0], made)

    def _once(self, weight: _Quantized, part: str, make: Any) -> Handle | None:
        if (weight.data, part) not in self._made:
            self._made[weight.data, part] = make(weight)
        return self._made[weight.data, part]

    def _stored(self, value: Value) -> Any:
        return self._rewriter.weights(self._rewriter.handle(value))

    def _unsigned(self, value: Value, bits: int) -> numpy.ndarray:
        """Return the elements of ``value`` as u8, signed elements offset by half of their range."""
        numbers: numpy.ndarray = self._stored(value).load().view(numpy.uint8) & (2**bits - 1)
        return numbers ^ 2 ** (bits - 1) if value.element_type.startswith("i") else numbers

    def _packed(self, weight: _Quantized) -> Handle:
        shape = [weight.rows, weight.count, weight.blocks.size * weight.blocks.bits // 8]
        return self._declared(weight, shape, "packed")

    def _bytes(self, weight: _Quantized) -> Handle:
        return self._declared(weight, [weight.rows, weight.columns], "bytes")

    def _declared(self, weight: _Quantized, shape: list[int], label: str) -> Handle:
        """Return the weight, declared as bytes; unsigned weights are not read."""
        content = self._stored(weight.data)
        if weight.is_signed:
            self.written += 1
            content = packed(self._unsigned(weight.data, weight.blocks.bits), weight.blocks.bits).reshape(shape)
        return self._rewriter.declared(content, shape, f"{weight.data.name}/{label}", "u8")

    def _packed_zeros(self, weight: _Quantized) -> Handle | None:
        """Return packed zero points, whole bytes per row; ``None`` for the operator's default."""
        if weight.blocks.zeros is None and weight.is_signed:
            return None
        if weight.blocks.zeros is None:
            zeros = numpy.zeros([weight.rows, weight.count], numpy.uint8)
        else:
            zeros = self._unsigned(weight.blocks.zeros, weight.blocks.bits).reshape(weight.rows, weight.count)
        joined = packed(zeros, weight.blocks.bits)
        return self._rewriter.declared(joined, list(joined.shape), f"{weight.data.name}/zeros")
