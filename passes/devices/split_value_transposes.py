"""The pass `split-value-transposes`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import past_of
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Done, Pass

#: Swaps the axes of positions and heads.
_ORDER = (0, 2, 1, 3)


@dataclass(frozen=True)
class SplitValueTransposes(Pass[OpenVINOModel]):
    """Append to caches of values only results of Transposes of order [0, 2, 1, 3].

    NPUW stores values transposed, and replaces the order of the Transpose before the cache by [0, 2, 3, 1], whatever it
    was (``optimize_value_tensors.cpp`` of openvino, 2026.4.1). Falcon with one key head exports the order [1, 0, 2, 3].

    Shapes:
        value ``[batch, heads, sequence, head_dim]``

    Before:
        Transpose(value, order) -> Concat(past, .)
    After:
        Transpose(value, order[0, 2, 1, 3]) -> Transpose(., [0, 2, 1, 3]) -> Concat(past, .)

    Raises:
        PreconditionError: GP302, the model is not stateful.
    """

    name = "split-value-transposes"
    dialect = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> Done:
        graph, rewriter, split = model.graph, model.rewriter(), 0
        values = (cache for cache in analyze_caches(model).of_kind("kv") if cache.role == "value")
        uses = (use for cache in values for use in graph.uses(past_of(graph, graph.reads[cache.read])))
        for append in (use.node for use in uses if use.node.op == "Concat" and len(use.node.inputs) == 2):
            node = graph.producer(append.source(1))
            order = node.attributes["order"] if node.op == "Transpose" else _ORDER
            if order != _ORDER:
                write = rewriter.under(node.name)
                rows = write.op("Transpose", node.source(), order=[order[axis] for axis in _ORDER], label="rows")
                rewriter.redirect(append, 1, write.op("Transpose", rows, order=_ORDER, label="heads"))
                split += 1
        rewriter.finish()
        return Done({"transposes split": split} if split else {})
