"""Read the size of rows that models read for each token, such as embeddings."""

from __future__ import annotations

from graphpass.analysis.symbolic.sizes import infer_sizes
from graphpass.ir.inputs import EMBEDDINGS
from graphpass.ir.model import Model


def hidden_size(model: Model) -> int | None:
    """Return the last dimension of ``inputs_embeds``; ``None`` if the graph leaves it open."""
    return row_size(model, EMBEDDINGS)


def row_size(model: Model, name: str) -> int | None:
    """Return the last dimension of an input; ``None`` if it is missing or open.

    Args:
        model: The model.
        name: Name of the input.
    """
    rows = model.graph.parameters.get(name)
    shape = None if rows is None else model.analysis(infer_sizes).shape(rows)
    size = shape[-1].as_number if shape else None
    return size if isinstance(size, int) else None
