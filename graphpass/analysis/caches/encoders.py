"""Distinguish encoders, embedders and rerankers from decoders without caches; find caches that encoders fill."""

from __future__ import annotations

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_masks
from graphpass.ir.graph import Node
from graphpass.ir.inputs import token_input
from graphpass.ir.model import Model
from graphpass.ir.values import REALS


def is_encoder(model: Model) -> bool:
    """Return whether ``model`` is an encoder, for `Model.analysis`.

    An encoder has a token input, attention and no caches. It returns no logits of each token, or attends to later
    tokens.
    """
    inventory = analyze_caches(model)
    keeps = inventory.caches or inventory.unpaired_inputs or inventory.unpaired_outputs
    if keeps or not inventory.attention or token_input(model.graph) is None:
        return False
    if not any(port.name == "logits" and len(port.shape or ()) == 3 for port in model.outputs):
        return True
    return any(not mask.is_causal and not mask.misses for mask in model.analysis(find_masks))


def is_pooled(model: Model) -> bool:
    """Return whether the first output of an encoder has no axis of tokens."""
    return next(iter(model.outputs)).name in pooled_outputs(model)


def pooled_outputs(model: Model) -> frozenset[str]:
    """Return the outputs without an axis of tokens; empty for other models than encoders."""
    pooled = frozenset(port.name for port in model.outputs if len(port.shape or ()) == 2)
    return pooled if model.analysis(is_encoder) else frozenset()


def filled_caches(model: Model) -> tuple[Node, ...]:
    """Return the outputs ``[batch, heads, positions, head_dim]`` of a model without caches; empty for others."""
    if analyze_caches(model).caches:
        return ()
    results = ((result, result.source()) for result in model.graph.of_op("Result"))
    return tuple(result for result, value in results if value.rank == 4 and value.element_type in REALS)
