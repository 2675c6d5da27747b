"""Inputs that language models have by convention, by which runtimes feed them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpass.ir.graph import Graph, Value

__all__ = ["PAST_LENGTH", "TOKEN_INPUTS", "token_input"]

#: The new tokens, or their embeddings.
TOKEN_INPUTS = ("input_ids", "inputs_embeds")

#: Number of positions to keep of the past, if no other inputs imply it.
PAST_LENGTH = "past_len"


def token_input(graph: Graph) -> Value | None:
    """Return the input that holds the new tokens, or their embeddings."""
    return next((graph.parameters[name] for name in TOKEN_INPUTS if name in graph.parameters), None)
