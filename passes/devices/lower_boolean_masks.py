"""The pass `lower-boolean-masks`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Value
from graphpass.ir.operators import LAYOUT, SLICES
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import MASKED
from graphpass.ir.writer import Handle


@dataclass(frozen=True)
class LowerBooleanMasks(Pass[OpenVINOModel]):
    """Replace boolean masks, and f32 masks beyond the range of f16, by finite f16 values.

    If a boolean mask excludes all keys of a query, as for padding, the decomposition in OpenVINO's common
    transformations computes NaN, which spreads to other queries. NPUW always decomposes attention. The lowest value of
    f16 also excludes a key, and results for fully masked queries are finite. Decomposed attention adds the lowest value
    of f32, which is infinite in f16, the type in which NPUW computes. (`fuse-attention` clamps the masks of attention
    that it fuses.)

    Shapes:
        mask broadcastable to ``[batch, heads, length, sequence]``, of the query's type after the pass.

    Before:
        mask (boolean) -> ScaledDotProductAttention
    After:
        mask -> Select(., 0, -65504) -> ScaledDotProductAttention

    Before:
        Select(., 0, -3.4e38) -> Slice, .. -> Add(scores, .) -> Softmax
    After:
        Select(., 0, -3.4e38) -> Slice, .. -> Maximum(., -65504) -> Add(scores, .) -> Softmax
    """

    name = "lower-boolean-masks"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        rewriter = model.rewriter()
        counts = _lower_boolean(rewriter) | _bound_numbers(rewriter)
        rewriter.finish()
        return Done({name: count for name, count in counts.items() if count})


def _lower_boolean(rewriter: Rewriter) -> dict[str, int]:
    made: dict[tuple[Value, str], Handle] = {}
    count = 0
    for node in rewriter.graph.of_op("ScaledDotProductAttention"):
        mask, wanted = node.inputs[3] if len(node.inputs) > 3 else None, node.source().element_type
        if mask is None or mask.element_type != "boolean":
            continue
        if (mask, wanted) not in made:
            name = f"{node.name}/mask"
            write = rewriter.under(name)
            branches = (write.number(value, wanted, label) for value, label in ((0.0, "seen"), (MASKED, "hidden")))
            made[mask, wanted] = write.op("Select", mask, *branches, name=name)
        rewriter.redirect(node, 3, made[mask, wanted])
        count += 1
    return {"attention": count, "masks": len(made)}


def _bound_numbers(rewriter: Rewriter) -> dict[str, int]:
    graph = rewriter.graph
    made: dict[Value, Handle] = {}
    for softmax in graph.of_op("Softmax"):
        total = graph.producer(softmax.source())
        for port, mask in enumerate(total.inputs if total.op == "Add" else ()):
            if mask is None or not _exceeds_f16(graph, mask):
                continue
            if mask not in made:
                write = rewriter.under(f"{graph.producer(mask).name}/bounded")
                lowest = write.number(MASKED, mask.element_type, "lowest")
                made[mask] = write.op("Maximum", mask, lowest, name=f"{graph.producer(mask).name}/bounded")
            rewriter.redirect(total, port, made[mask])
    return {"masks bounded": len(made)}


def _exceeds_f16(graph: Graph, mask: Value) -> bool:
    node = graph.producer(graph.look_through(mask, LAYOUT | SLICES))
    branches = [graph.constant(branch) for branch in node.inputs[1:]] if node.op == "Select" else []
    return any(branch is not None and bool((branch < MASKED).any()) for branch in branches)
