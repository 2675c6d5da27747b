"""Speculative decoding: guess several tokens, and check them all in one step of the model.

The result is the model's own greedy choice, token for token; guesses only reduce the number of steps. Every
`DecodeSession` serves: wrong guesses are rewound, and of a tree the ones that hold are moved to their slots.
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
