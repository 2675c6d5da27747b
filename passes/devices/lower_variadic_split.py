"""The pass `lower-variadic-split`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.runtime_options import scales_activations
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size


@dataclass(frozen=True)
class LowerVariadicSplit(Pass[OpenVINOModel]):
    """Replace a VariadicSplit of multiplied parts by Slices if activations are scaled.

    Optimum writes ACTIVATIONS_SCALE_FACTOR to nearly every IR. GPU plugins then move scale factors through the graph,
    confuse the outputs of a VariadicSplit, and fail to compile gated convolutions (LFM2's). The plugin of 2026.4.1
    does not transform a model with a cache that is only read, gathered by ``beam_idx`` and appended to. It fails for
    stateless models, and for models whose caches are all moved or cut.

    Shapes:
        any; the sizes of the parts are constant.

    Before:
        VariadicSplit(x, axis, [a, b, c]) -> Multiply(part 0, part 2)
    After:
        Multiply(Slice(x, 0 : a), Slice(x, a + b : a + b + c))
    """

    name = "lower-variadic-split"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        if not scales_activations(model):
            return Done()
        rewriter = model.rewriter()
        splits = [node for node in rewriter.graph.of_op("VariadicSplit") if _multiplies_parts(rewriter.graph, node)]
        count = sum(_lower(rewriter, node) for node in splits)
        rewriter.finish()
        return Done({"VariadicSplit lowered": count})


def _multiplies_parts(graph: Graph, split: Node) -> bool:
    products = [{use.node.index for use in graph.uses(part) if use.node.op == "Multiply"} for part in split.outputs]
    return len(set().union(*products)) < sum(map(len, products))


def _lower(rewriter: Rewriter, split: Node) -> bool:
    # A length of -1 means the rest; shape inference resolves it.
    axis = split.attributes.get("axis")
    sizes = [size for part in split.outputs if axis is not None and (size := fixed_size(part, axis)) is not None]
    if axis is None or len(sizes) < len(split.outputs):
        return False
    write = rewriter.under(split.name)
    for port, (part, size) in enumerate(zip(split.outputs, sizes, strict=True)):
        start = sum(sizes[:port])
        rewriter.redirect_uses(part, write.slice(split.source(), start, start + size, axis, label=f"part_{port}"))
    return True
