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
from graphpass.ir.rewriter import Handle, Rewriter
from graphpass.ir.values import REALS

#: Functions of each element that HTP computes for four axes at most.
_ELEMENTWISE = frozenset({
    "Ceiling", "Cos", "Elu", "Floor", "HSwish", "HardSigmoid", "Log", "Negative", "Round", "Sign", "Sin", "Sqrt", "Tanh"
})  # fmt: skip


@dataclass(frozen=True)
class FlattenRows(Pass[OnnxModel]):
    """Lay rows along one axis: of narrow norms, and of operators of many axes.

    Qualcomm's HTP, emulated by onnxruntime-qnn 2.7.0, norms up to 32 channels wrongly in many sizes if rows lie along
    several axes, as those of heads do: ``[1, 2, 16, 16]`` and ``[1, 9, 4, 32]``, but not ``[1, 8, 16, 16]``. Rows along
    one axis are right (``tests/targets/qnn/test_operators.py``). It has no CumSum, norms and some functions of five
    axes, as recurrences over chunks of tokens have.

    Options:
        width: The most channels of a norm that is rewritten.
        rank: The most axes of what stays.

    Shapes:
        x f32 or f16 ``[.., n]`` of three axes and more, n at most ``width``; weight ``[n]``
        y f32 or f16 of more axes than ``rank``, of which two and more lie before that of the operator

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
    found = tuple(narrow_norms(rewriter.graph, width))
    for norm, channels in found:
        write = rewriter.under(norm.name)
        shape = write.op("ShapeOf", norm.source(), label="shape")
        rows = write.op("Reshape", norm.source(), [1, -1, channels], label="rows")
        flat = rewriter.clone(norm, {0: rows}, f"{norm.name}/flat", axes=[-1])
        rewriter.replace(norm.outputs[0], write.op("Reshape", flat, shape, label="laid_out"))
    return len(found)


def _deep(rewriter: Rewriter, rank: int) -> int:
    found = tuple(_of_many_axes(rewriter.graph, rank))
    for node, axis in found:
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
    return len(found)


def _of_many_axes(graph: Graph, rank: int) -> Iterator[tuple[Node, int]]:
    """Yield operators of floats of many axes, and the first axis that has to stay."""
    for node in graph.of_op(*_ELEMENTWISE, *NORMS, "CumSum"):
        source = node.source()
        axes = source.rank or 0
        if axes <= rank or source.element_type not in REALS or len(node.outputs) > 1:
            continue
        if node.op == "CumSum":
            axis = fold_scalar(graph, node.inputs[1])
        else:
            axis = axes - 1 if node.attributes.get("axis", -1) in {-1, axes - 1} else None
        if axis is not None and (place := int(axis) % axes) > 1 and 1 + axes - place <= rank:
            yield node, place
