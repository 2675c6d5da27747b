"""The pass `keep-cross-caches`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.conditions import STATEFUL
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Value
from graphpass.ir.inputs import ENCODER_STATES
from graphpass.ir.operators import SOURCES

_KEY, _VALUE = 1, 2


@dataclass(frozen=True)
class KeepCrossCaches(Pass[OpenVINOModel]):
    """Store keys and values of cross attention in variables, so that they are computed once.

    The initializer of a variable computes its value from the encoder's states in the first step after a reset. The
    variable is unchanged until the next reset.

    Before:
        encoder_hidden_states (Parameter) -> MatMul -> Reshape -> Transpose -> ScaledDotProductAttention
    After:
        encoder_hidden_states (Parameter) -> MatMul -> Reshape -> Transpose -> ReadValue -> ScaledDotProductAttention;
        ReadValue -> Assign

    Raises:
        PreconditionError: GP302, the model is not stateful, so that runtimes do not reset it between two sequences.
    """

    name = "keep-cross-caches"
    dialect = "openvino"
    requires = (STATEFUL,)

    def run(self, model: OpenVINOModel) -> Done:
        graph, rewriter = model.graph, model.rewriter()
        reads = [(node, port) for node in graph.of_op("ScaledDotProductAttention") for port in (_KEY, _VALUE)]
        values = dict.fromkeys(node.source(port) for node, port in reads)
        kept = {}
        for value in values:
            if _comes_from_the_encoder(graph, value):
                name = graph.producer(value).name
                kept[value] = rewriter.add_variable(
                    name, value.element_type, value.shape, rewriter.native(value), f"{name}/read"
                )
                rewriter.add_assign(name, kept[value], f"{name}/write")
        for node, port in reads:
            if (state := kept.get(node.source(port))) is not None:
                rewriter.redirect(node, port, state)
        rewriter.finish()
        return Done({"cross caches": len(kept)})


def _comes_from_the_encoder(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` depends on an encoder's hidden states, and otherwise only on sizes."""
    upstream = graph.backward([value], lambda node: () if node.op == "ShapeOf" else node.inputs)
    return [node.name for node in upstream if node.op in SOURCES] == [ENCODER_STATES]
