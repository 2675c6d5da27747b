"""Conventional names of inputs and outputs of language models, and the limit of positions."""

from __future__ import annotations

from graphpass.errors import UsageError
from graphpass.ir.graph import Graph, Value

#: Embeddings of the new tokens, in models without an embedding table.
EMBEDDINGS = "inputs_embeds"

#: Whether each new token is part of an image, and the features of these tokens that layers add to hidden states
#: ``[levels, tokens, hidden]``, as exports of Qwen3-VL have.
VISUAL_MASK, VISUAL_FEATURES = "visual_pos_masks", "deepstack_visual_embeds"

#: States of layers of a target for each token, besides its id, as drafts such as EAGLE-3's read them.
TARGET_STATES = "hidden_states"

#: Hidden states of an encoder ``[batch, positions, hidden]``, which a decoder's cross attention reads.
ENCODER_STATES = "encoder_hidden_states"

#: The new tokens, or their embeddings.
TOKEN_INPUTS = ("input_ids", EMBEDDINGS)

#: Inputs that runtimes feed as i64, whatever type a model declares.
_FED_AS_I64 = ("input_ids", "attention_mask", "position_ids", "token_type_ids")

#: Name of the batch dimension, as optimum writes it.
BATCH_NAME = "batch_size"

#: Inputs with the number of last tokens whose logits are computed. 0 keeps all: transformers slices from -0.
KEPT_LOGITS = frozenset({"num_logits_to_keep", "logits_to_keep"})

#: Number of past positions to keep, if other inputs do not imply it.
PAST_LENGTH = "past_len"

#: Source and destination of slots that a reorder moves; the second may have one input for each layout.
SOURCE_SLOTS, NEW_SLOTS = "src_idx", "dst_idx"

#: Input that selects the decoder of the first step or of later steps, in a model with both as branches.
BRANCH = "use_cache_branch"

#: Inputs whose names state their meaning.
CONVENTIONAL = frozenset(
    {
        *TOKEN_INPUTS,
        *("attention_mask", "position_ids", "cache_position", "token_type_ids", "beam_idx", "tree_mask"),
        *(VISUAL_MASK, VISUAL_FEATURES, TARGET_STATES, ENCODER_STATES, "encoder_attention_mask"),
        *(PAST_LENGTH, SOURCE_SLOTS, NEW_SLOTS, BRANCH, *KEPT_LOGITS),
    }
)

#: Prefix of outputs with the residual stream after a layer; the index of the layer follows.
HIDDEN_STATES = "hidden_states."

#: Some operators of runtimes read lengths as i32 (total_sequence_length of GroupQueryAttention).
_MOST_POSITIONS = 2**31 - 1


def token_input(graph: Graph) -> Value | None:
    """Return the input for the new tokens, or for their embeddings."""
    return next((graph.parameters[name] for name in TOKEN_INPUTS if name in graph.parameters), None)


def narrow_inputs(graph: Graph) -> tuple[Value, ...]:
    """Return token ids, mask and positions of other types than i64."""
    values = (graph.parameters.get(name) for name in _FED_AS_I64)
    return tuple(value for value in values if value is not None and value.element_type != "i64")


def is_merged(graph: Graph) -> bool:
    """Return whether a model has two decoders as branches."""
    return BRANCH in graph.parameters


def check_positions(what: str, count: int) -> None:
    """Check that ``count`` positions are within the limits of runtimes.

    Args:
        what: Name of the counted object, for the message.
        count: Number of positions.

    Raises:
        UsageError: GP266, the count is out of range.
    """
    if not 1 <= count <= _MOST_POSITIONS:
        raise UsageError(
            "GP266", f"{what} of {count} positions is out of range", f"use a number from 1 to {_MOST_POSITIONS}"
        )
