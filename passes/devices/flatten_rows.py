"""The pass `flatten-rows`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphpass.analysis.equations.norms import narrow_norms
from graphpass.analysis.symbolic.folding import fold_scalar
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node
from graphpass.ir.operators import NORMS
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import REALS
from graphpass.ir.writer import Handle

#: Elementwise operators that HTP supports for at most four axes.
_ELEMENTWISE = frozenset({
    "Ceiling", "Cos", "Elu", "Floor", "HSwish", "HardSigmoid", "Log", "Negative", "Round", "Sign", "Sin", "Sqrt", "Tanh"
})  # fmt: skip


@dataclass(frozen=True)
class FlattenRows(Pass[OnnxModel]):
    """Merge axes of rows into one, for narrow norms and operators of many axes.

    Qualcomm's HTP, emulated by onnxruntime-qnn 2.7.0, computes norms of up to 32 channels incorrectly for many shapes
    with several axes of rows, such as norms of heads: ``[1, 2, 16, 16]`` and ``[1, 9, 4, 32]``, but not ``[1, 8, 16,
    16]``. Norms with one axis of rows are correct (``tests/targets/qnn/test_operators.py``). HTP does not support
    CumSum, norms and some elementwise operators with five axes, which recurrences over chunks of tokens have.

    Options:
        width: Largest number of channels of norms to rewrite.
        rank: Largest rank of operators that are unchanged.

    Shapes:
        x f32 or f16 ``[.., n]`` with at least three axes, n at most ``width``; weight ``[n]``;
        y f32 or f16 with more than ``rank`` axes, at least two of them before the operator's axis

    Before:
        SimplifiedLayerNormalization(x, weight)
    After:
        Reshape(x, [1, -1, n]) -> SimplifiedLayerNormalization(., weight) -> Reshape(., ShapeOf(x))

    Before:
        CumSum(y [a, b, c, d, e], axis=3)
    After:
        Reshape(y, [-1, d, e]) -> CumSum(., axis=1) -> Reshape(., ShapeOf(y))
    """

    name = "flatten-rows"
    dialect = "onnx"

    width: int = 32
    rank: int = 4

    def run(self, model: OnnxModel) -> Done:
        rewriter = model.rewriter()
        counts = {"norms": _norms(rewriter, self.width), "operators": _deep(rewriter, self.rank)}
        rewriter.finish()
        return Done({name: count for name, count in counts.items() if count})


def _norms(rewriter: Rewriter, width: int) -> int:
    norms = tuple(narrow_norms(rewriter.graph, width))
    for norm, channels in norms:
        write = rewriter.under(norm.name)
        shape = write.op("ShapeOf", norm.source(), label="shape")
        rows = write.op("Reshape", norm.source(), [1, -1, channels], label="rows")
        flat = rewriter.clone(norm, {0: rows}, f"{norm.name}/flat", axes=[-1])
        rewriter.replace(norm.outputs[0], write.op("Reshape", flat, shape, label="laid_out"))
    return len(norms)


def _deep(rewriter: Rewriter, rank: int) -> int:
    deep = tuple(_of_many_axes(rewriter.graph, rank))
    for node, axis in deep:
        write = rewriter.under(node.name)
        shape = write.op("ShapeOf", node.source(), label="shape")
        kept = write.slice(shape, axis, None, 0, label="kept")
        rows = write.op("Reshape", node.source(), write.op("Concat", [-1], kept, axis=0, label="joined"), label="rows")
        operands: dict[int, Handle] = {0: rows}
        if node.op == "CumSum":
            operands[1] = write.number(1, "i64", "axis")
        axes = [-1] if node.op in NORMS and "axis" in node.attributes else None
        flat = rewriter.clone(node, operands, f"{node.name}/flat", axes=axes)
        rewriter.replace(node.outputs[0], write.op("Reshape", flat, shape, label="laid_out"))
    return len(deep)


def _of_many_axes(graph: Graph, rank: int) -> Iterator[tuple[Node, int]]:
    """Yield floating-point operators of many axes, and the first axis that cannot be merged."""
    for node in graph.of_op(*_ELEMENTWISE, *NORMS, "CumSum"):
        source = node.source()
        axes = source.rank or 0
        if axes <= rank or source.element_type not in REALS or len(node.outputs) > 1:
            continue
        if node.op == "CumSum":
            axis = fold_scalar(graph, node.inputs[1])
        else:
            axis = axes - 1 if node.attributes.get("axis", -1) in {-1, axes - 1} else None
        if axis is not None and (first := int(axis) % axes) > 1 and 1 + axes - first <= rank:
            yield node, first
