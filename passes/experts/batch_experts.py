"""The pass `batch-experts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphpass.analysis.experts.products import Product
from graphpass.analysis.experts.routed import ExpertLayer, routed_layers
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.passes import Done, Pass
from graphpass.ir.graph import Value
from graphpass.ir.miss import Miss
from graphpass.ir.rewriter import Rewriter
from graphpass.ir.values import fixed_size
from graphpass.ir.writer import Handle, Writer


@dataclass(frozen=True)
class BatchExperts(Pass[OpenVINOModel]):
    """Batch the products of all experts of a layer.

    Exporters that trace a loop over experts write, for each expert, the search for its tokens, its products, and the
    addition to the previous results. Others sort the tokens by expert, and slice them for each expert. The pass writes
    one product over all experts, with routing weights for each pair of token and expert; the CPU plugin replaces this
    form by a kernel that computes only the selected experts. Weights are not copied: plugins concatenate them when they
    compile a model.

    Shapes:
        tokens ``[tokens, hidden]``, selected experts and routing weights ``[tokens, k]``; the weights of all experts
        are constants of equal shape and type.

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
        for layer in routed_layers(rewriter.graph).values():
            if isinstance(layer, Miss):
                notes.append(f"experts stay unchanged: {layer}")
                continue
            rewriter.redirect_uses(layer.total, _batched(rewriter, layer))
            layers += 1
            experts += layer.count
        rewriter.finish()
        return Done({"layers": layers, "experts batched": experts}, tuple(notes))


def _batched(rewriter: Rewriter, layer: ExpertLayer) -> Handle:
    hidden, function = fixed_size(layer.rows, 1) or 0, layer.experts[0].function
    write, kind = rewriter.under(f"{layer.name}/batched"), layer.rows.element_type

    def reshape(label: str, value: Handle, *sizes: int | Handle) -> Handle:
        whole = write.op("Concat", *([size] if isinstance(size, int) else size for size in sizes), axis=0)
        return write.op("Reshape", value, whole, zero_keeps=False, label=label)

    length = write.size(layer.chosen, 0, "length")
    rows = reshape("tokens", write.op("Tile", layer.rows, [layer.count, 1]), layer.count, length, hidden)
    *first, last = (list(alike) for alike in zip(*(expert.products for expert in layer.experts), strict=True))
    values: dict[Value | None, Handle] = {}
    for leaf, products in zip(function.leaves, first, strict=True):
        values |= dict.fromkeys(leaf, _product(write, rows, products, kind))
    for node in function.nodes:
        values[node.outputs[0]] = write.clone(node, *(values.get(value, value) for value in node.inputs))
    results = reshape("results", _product(write, values[function.end], last, kind), layer.count, length, -1, hidden)
    everywhere = write.op("Concat", length, [layer.count], axis=0)
    none = write.op("Broadcast", write.number(0.0, layer.weights.element_type), everywhere)
    gates = write.op("ScatterElementsUpdate", none, layer.chosen, layer.weights, axis=1, label="gates")
    by_expert = reshape("by_expert", write.op("Transpose", gates, order=[1, 0]), layer.count, length, -1)
    weighted = write.op("Multiply", results, write.op("Unsqueeze", by_expert, 3), label="weighted")
    return reshape("total", write.op("ReduceSum", weighted, axes=[0], keep=False), length, hidden)


def _product(write: Writer, rows: Handle, products: Sequence[Product], kind: str) -> Handle:
    """Return rows ``[experts, tokens, inputs]`` times the weights of all experts, plus biases."""
    weights, biases = [], []
    for product in products:
        weight = _columns(write, product, product.weight, 0 if product.is_turned else 1)
        # FullyConnected requires transposed weights.
        weight = weight if product.is_turned else write.op("Transpose", weight, order=[1, 0])
        weights.append(write.op("Unsqueeze", weight, axes=[0]))
        if product.bias is not None:
            biases.append(
                write.op("Reshape", _columns(write, product, product.bias, (product.bias.rank or 1) - 1), [1, 1, -1])
            )
    stacked = [
        write.convert(write.op("Concat", *parts, axis=0, label="weights"), kind) for parts in (weights, biases) if parts
    ]
    made = write.op("MatMul", rows, stacked[0], transpose_b=True)
    return write.op("Add", made, stacked[1]) if biases else made


def _columns(write: Writer, product: Product, stored: Value, axis: int) -> Handle:
    start, stop, step = product.columns
    if product.columns == (0, fixed_size(stored, axis), 1):
        return stored
    if step == 1:
        return write.slice(stored, start, stop, axis)
    return write.op("Slice", stored, [start], [stop], [step], axes=[axis])
