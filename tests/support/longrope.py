"""A model whose rotary frequencies change at a length."""

from __future__ import annotations

import math

from graphpass.io import load
from graphpass.ir.model import Model
from support.models import exporters


def with_two_tables(length: int) -> Model:
    """Return a llama of two layers whose frequencies are doubled for more than ``length`` columns of the mask."""
    model = load(exporters("transformers-onnx", "llama")).clone()
    rewriter = model.rewriter()
    graph = rewriter.graph
    cosine = next(graph.of_op("Cos"))
    small = [node for node in graph.backward([cosine.source()], lambda node: node.inputs) if node.op == "Constant"]
    frequencies = max(small, key=lambda node: math.prod(node.outputs[0].shape or ())).outputs[0]
    write = rewriter.under("longrope")
    columns = write.op("Gather", write.op("ShapeOf", graph.parameters["attention_mask"]), 1, axis=0)
    twice = write.constant(2 * graph.constant(frequencies), "twice")
    uses = list(graph.uses(frequencies))
    chosen = write.op("Select", write.op("Greater", columns, length), twice, frequencies, label="chosen")
    for use in uses:
        rewriter.redirect(use.node, use.port, chosen)
    rewriter.finish()
    return model
