"""Speculative decoding: draft several tokens, and verify them in one step of the target model.

The result is the target's own greedy choice, token for token; drafts only reduce the number of steps. Any
`DecodeSession` can be the target: it rewinds rejected drafts, and reorders the accepted path of a tree to its slots.
"""

from graphpass.runtime.speculative.decoding import Drafter, Speculation, StateDrafter, speculate
from graphpass.runtime.speculative.drafts import DraftModel, PromptLookup
from graphpass.runtime.speculative.hidden_states import Head, HiddenStateDraft, ModelHead
from graphpass.runtime.speculative.tree import DraftTree

__all__ = [
    "DraftModel",
    "DraftTree",
    "Drafter",
    "Head",
    "HiddenStateDraft",
    "ModelHead",
    "PromptLookup",
    "Speculation",
    "StateDrafter",
    "speculate",
]
