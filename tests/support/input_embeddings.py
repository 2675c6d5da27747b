"""Models of ids with their embeddings cut off, so that the two compute the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.ir.inputs import EMBEDDINGS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.graph import Graph, Node
    from graphpass.ir.model import Model


def with_input_embeddings(model: Model) -> tuple[Model, NDArray[np.float32]]:
    """Return ``model`` with an input ``inputs_embeds`` in place of ``input_ids``, and the table of embeddings."""
    model = model.clone()
    graph = model.graph
    ids = graph.parameters["input_ids"]
    lookup, table = _lookup(graph)
    rewriter = model.rewriter()
    write = rewriter.under("cut")
    embeddings = rewriter.input(EMBEDDINGS, "f32", [None, None, table.shape[1]])
    like_ids = write.convert(write.op("ReduceSum", embeddings, axes=[2], keep=False), "i64")
    rewriter.redirect_uses(lookup.outputs[0], embeddings)
    rewriter.redirect_uses(ids, like_ids)
    rewriter.drop([graph.producer(ids)])
    rewriter.finish()
    return model, table.astype(np.float32)


def _lookup(graph: Graph) -> tuple[Node, NDArray[np.float32]]:
    """Return the Gather of the embeddings, and its table."""
    for node in graph.of_op("Gather"):
        table = graph.constant(node.inputs[0], limit=1 << 20)
        if table is not None and table.ndim == 2 and len(table) == 320:
            return node, table
    raise AssertionError("no embeddings")
