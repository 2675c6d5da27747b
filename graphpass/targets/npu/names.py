"""List the inputs that NPUW knows by name, and those that it does not feed."""

from __future__ import annotations

from graphpass.ir.inputs import NEW_SLOTS, PAST_LENGTH, SOURCE_SLOTS, TOKEN_INPUTS

#: Known inputs, those of some families included; every other is taken for a cache.
KNOWN_INPUTS = frozenset(
    {*TOKEN_INPUTS, "attention_mask", "position_ids", "beam_idx", "token_type_ids", "per_layer_inputs"}
)

#: Inputs by which passes let a caller edit caches, and see or take back steps.
EDITING_INPUTS = frozenset({SOURCE_SLOTS, NEW_SLOTS, PAST_LENGTH, "tree_mask", "steps_back"})

#: A cure for models with editing inputs: NPUW overwrites what lies from the first position on that it is fed.
GO_BACK = "to go back, rewind a session: graphpass.runtime.open_session(model, device='NPU')"

#: The cure if states would have to go back, which positions do not move.
START_AGAIN = "to go back, start again, as sessions on NPU do: NPUW keeps no earlier states"
