"""Inputs that NPUW recognizes by name, and inputs that it does not feed."""

from __future__ import annotations

from graphpass.ir.inputs import NEW_SLOTS, PAST_LENGTH, SOURCE_SLOTS, TOKEN_INPUTS, VISUAL_FEATURES, VISUAL_MASK

#: Inputs that NPUW recognizes, some only for certain families; it treats all others as caches.
KNOWN_INPUTS = frozenset(
    {
        *TOKEN_INPUTS,
        *(VISUAL_MASK, VISUAL_FEATURES),
        *("attention_mask", "position_ids", "beam_idx", "token_type_ids", "per_layer_inputs"),
    }
)

#: Inputs added by passes for editing caches, and for observing or reverting steps.
EDITING_INPUTS = frozenset({SOURCE_SLOTS, NEW_SLOTS, PAST_LENGTH, "tree_mask", "steps_back"})

#: Hint for models with editing inputs: NPUW overwrites slots from the first fed position on, so sessions can rewind.
GO_BACK = "to undo steps, rewind a session: graphpass.runtime.open_session(model, device='NPU')"

#: Hint for models with ``linear`` caches, which cannot be rewound.
START_AGAIN = "to undo steps, reset and feed the tokens again, as sessions on NPU do: NPUW stores no earlier states"
