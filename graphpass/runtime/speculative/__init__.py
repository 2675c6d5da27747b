"""Speculative decoding: draft several tokens, and check them all in one step of the model.

The result is the model's own greedy choice, token for token; drafts only reduce the number of steps. Every
`DecodeSession` serves: wrong drafts are rewound, and of a tree the ones that hold are moved to their slots.
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
