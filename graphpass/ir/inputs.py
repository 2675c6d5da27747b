"""Name inputs and outputs of language models by convention; bound the positions in them."""

from __future__ import annotations

from graphpass.errors import UsageError
from graphpass.ir.graph import Graph, Value

#: The embeddings of the new tokens, in models that another one embeds them for.
EMBEDDINGS = "inputs_embeds"

#: The new tokens, or their embeddings.
TOKEN_INPUTS = ("input_ids", EMBEDDINGS)

#: Name of the dimension of the batch, as optimum writes it.
BATCH_NAME = "batch_size"

#: Numbers of the last tokens whose logits are computed: transformers slices from -0, which keeps all.
KEPT_LOGITS = frozenset({"num_logits_to_keep", "logits_to_keep"})

#: Number of positions to keep of the past, if no other inputs imply it.
PAST_LENGTH = "past_len"

#: Old and new places of slots that are moved before the step; the second may have one input for each layout.
SOURCE_SLOTS, NEW_SLOTS = "src_idx", "dst_idx"

#: Chooses between the decoders for the first step and for later ones, in a file that holds both as branches.
BRANCH = "use_cache_branch"

#: Begins the name of an output that gives the residual stream after a layer, whose number ends it.
HIDDEN_STATES = "hidden_states."

#: Lengths are i32 in some operators of runtimes (GroupQueryAttention's total_sequence_length).
_MOST_POSITIONS = 2**31 - 1


def token_input(graph: Graph) -> Value | None:
    """Return the input that holds the new tokens, or their embeddings."""
    return next((graph.parameters[name] for name in TOKEN_INPUTS if name in graph.parameters), None)


def is_merged(graph: Graph) -> bool:
    """Return whether a model holds two decoders as branches."""
    return BRANCH in graph.parameters


def check_positions(what: str, count: int) -> None:
    """Check that ``count`` positions fit; messages name their holder ``what``.

    Raises:
        UsageError: GP266, there cannot be so many.
    """
    if not 1 <= count <= _MOST_POSITIONS:
        reason = "holds nothing" if count < 1 else "is longer than runtimes can count"
        raise UsageError("GP266", f"{what} of {count} positions {reason}", f"give a number from 1 to {_MOST_POSITIONS}")
