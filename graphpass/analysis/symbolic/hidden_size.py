"""Read the hidden size of models that take embeddings of tokens."""

from __future__ import annotations

from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.inputs import EMBEDDINGS
from graphpass.ir.model import Model


def hidden_size(model: Model) -> int | None:
    """Return the last dimension of ``inputs_embeds``; ``None`` if the graph leaves it open."""
    embeddings = model.graph.parameters.get(EMBEDDINGS)
    shape = None if embeddings is None else model.analysis(infer_sizes).shape(embeddings)
    size = shape[-1].as_number if shape else None
    return size if isinstance(size, int) else None
