"""The pass `batch-experts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphpass.analysis.experts.layers import ExpertLayer, Weight
from graphpass.analysis.experts.separate import separate_experts, separate_layer
from graphpass.analysis.experts.sorted import SORTED, sorted_layer
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Graph, Node
from graphpass.ir.miss import Miss
from graphpass.ir.rewriter import Handle, Rewriter, Writer
from graphpass.ir.values import fixed_size


@dataclass(frozen=True)
class BatchExperts(Pass[OpenVINOModel]):
    """Make one product of all experts of a layer that are computed one by one.

    Exporters that trace a loop over experts write for each of them the search for its tokens, its products, and the sum
    with the results before. Others sort the tokens by expert, and cut them into a piece for each. Of one product, with
    a weight for each pair of token and expert, the CPU plugin makes a kernel that computes only the chosen experts.
    Weights stay in their places: plugins concatenate them when they compile a model.

    Shapes:
        tokens ``[tokens, hidden]``, chosen experts and their weights ``[tokens, k]``; the weights of all experts are
        constants of one shape and type.

    Before:
        for each expert: NonZero(OneHot(chosen)[expert]) -> Gather(tokens) -> MatMul, .. -> Multiply(., weights) ->
        ScatterElementsUpdate -> Add; or
        Gather(tokens, TopK(chosen) / k) -> for each expert: Slice(as many as chose it) -> MatMul -> Concat, .. ->
        Multiply(., weights) -> ScatterElementsUpdate
    After:
        Tile(tokens) -> MatMul(., Concat(weights of all experts)), .. -> Multiply(., weights by expert) -> ReduceSum
    """

    name = "batch-experts"
    dialect = "openvino"

    def run(self, model: OpenVINOModel) -> Done:
        rewriter = model.rewriter()
        layers = experts = 0
        notes = []
        for found in _layers(rewriter.graph):
            if isinstance(found, Miss):
                notes.append(f"experts stay one by one: {found}")
                continue
            rewriter.redirect_uses(found.total, _batched(rewriter, found))
            layers += 1
            experts += len(found.bodies)
        rewriter.finish()
        return Done({"layers": layers, "experts batched": experts}, tuple(notes))


def _layers(graph: Graph) -> list[ExpertLayer | Miss]:
    """Return the layers of both forms, and misses of partial ones."""
    layers = [sorted_layer(graph, match) for match in SORTED.find(graph)]
    return [*layers, *(separate_layer(graph, experts) for experts in separate_experts(graph).values())]


def _batched(rewriter: Rewriter, layer: ExpertLayer) -> Handle:
    count, hidden = len(layer.bodies), fixed_size(layer.tokens, 1) or 0
    write = rewriter.under(f"{layer.name}/batched")

    def reshape(label: str, value: Handle, *sizes: int | Handle) -> Handle:
        whole = write.op("Concat", *([size] if isinstance(size, int) else size for size in sizes), axis=0)
        return write.op("Reshape", value, whole, zero_keeps=False, label=label)

    length = write.size(layer.chosen, 0, "length")
    values = [reshape("tokens", write.op("Tile", layer.tokens, [count, 1]), count, length, hidden)]
    for place, step in enumerate(layer.bodies[0]):
        reads = [
            _stacked(write, step.node, [body[place].reads[port] for body in layer.bodies])
            if isinstance(read, Weight)
            else values[read + 1]
            for port, read in enumerate(step.reads)
        ]
        is_product = step.node.op == "MatMul"
        # Fully connected layers have weights transposed.
        made = write.op("MatMul", *reads, transpose_b=True) if is_product else write.clone(step.node, *reads)
        values.append(made)
    results = reshape("results", values[-1], count, length, -1, hidden)
    everywhere = write.op("Concat", length, [count], axis=0)
    none = write.op("Broadcast", write.number(0.0, layer.weights.element_type), everywhere)
    gates = write.op("ScatterElementsUpdate", none, layer.chosen, layer.weights, axis=1, label="gates")
    by_expert = reshape("by_expert", write.op("Transpose", gates, order=[1, 0]), count, length, -1)
    weighted = write.op("Multiply", results, write.op("Unsqueeze", by_expert, 3), label="weighted")
    return reshape("total", write.op("ReduceSum", weighted, axes=[0], keep=False), length, hidden)


def _stacked(write: Writer, node: Node, weights: Sequence[int | Weight]) -> Handle:
    """Return a constant ``[experts, outputs, inputs]`` of a product, ``[experts, 1, outputs]`` of others."""
    is_product = node.op == "MatMul"
    turn = is_product and not node.attributes["transpose_b"]
    parts, wanted = [], ""
    for weight in weights:
        assert isinstance(weight, Weight)
        part: Handle = weight.stored
        if weight.columns is not None:
            part = write.slice(part, *weight.columns, axis=1 if turn else 0)
        if turn:
            part = write.op("Transpose", part, order=[1, 0])
        parts.append(write.op("Unsqueeze", part, axes=[0] if is_product else [0, 1]))
        wanted, stored = weight.value.element_type, weight.stored.element_type
    whole = write.op("Concat", *parts, axis=0, label="weights")
    return whole if stored == wanted else write.op("Convert", whole, to=wanted)
