"""Split new tokens into runs of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.equations.token_weights import find_weighing
from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from graphpass.runtime.sessions.cache_store import CacheStore
    from graphpass.runtime.sessions.slots import Slots
    from graphpass.runtime.sessions.tokens import Tokens


def cut_runs(store: CacheStore, slots: Slots, fed: Tokens) -> list[int]:
    """Split new tokens into runs that weigh tokens by their own columns of the mask.

    Args:
        store: The model with its caches.
        slots: The slots before the new tokens.
        fed: The new tokens.

    Returns:
        The number of tokens in each run.

    Raises:
        UnsupportedError: GP323, as `CacheStore.runs`; GP379, the model reads other columns of attention_mask for them.
    """
    runs = store.runs(slots.size, fed.length, slots.batch)
    if not (store.fixed and store.growing) or (slots.visible.all() and fed.mask.all()):
        return runs
    mask, weighing = np.concatenate([slots.visible, fed.mask], axis=1), store.model.analysis(find_weighing)
    lengths: list[int] = []
    end = slots.size
    for size in runs:
        # A prompt of several tokens is right by definition, since recomputation feeds all tokens at once.
        alone = size == 1 or (end > 0 and not weighing.several.are_right(mask[:, : end + size], size))
        lengths += store.runs(end, 1, slots.batch) * size if alone else [size]
        for place in range(end + 1, end + size + 1) if alone else ():
            if not weighing.single.are_right(mask[:, :place], 1):
                message = "cannot exclude these tokens: the model reads other columns of attention_mask for them"
                hint = "feed padding with tokens after it, as one prompt, or run the pass extend-mask-to-past"
                raise UnsupportedError("GP379", message, hint)
        end += size
    return lengths
