"""Check draft trees: several continuations of one history, fed in one step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphpass.errors import UsageError


def checked_parents(parents: ArrayLike, length: int) -> NDArray[np.int64]:
    """Return ``parents`` as int64 [length].

    Args:
        parents: For each new token the index of its parent among the new tokens, -1 for the history.
        length: Number of new tokens.

    Raises:
        UsageError: GP247, the shape or type is wrong, or a parent does not precede its child.
    """
    array = np.asarray(parents)
    if array.shape != (length,) or array.dtype.kind not in "iu":
        raise UsageError("GP247", f"parents must be {length} whole numbers, not {array.dtype} {list(array.shape)}")
    array = array.astype(np.int64)
    wrong = np.flatnonzero((array < -1) | (array >= np.arange(length)))
    if wrong.size:
        child = int(wrong[0])
        raise UsageError(
            "GP247",
            f"the parent of new token {child} is {int(array[child])}, which does not precede it",
            "number the tokens so that parents come first; -1 is the history",
        )
    return array


def is_chain(parents: NDArray[np.int64]) -> bool:
    """Return whether each token is the parent of the next.

    Args:
        parents: Index of each new token's parent, int64 [length]; -1 for the history.
    """
    return bool((parents == np.arange(-1, len(parents) - 1)).all())


def depths(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the depth of each new token, 0 after the history, int64 [length]."""
    levels = np.zeros(len(parents), np.int64)
    for child, parent in enumerate(parents):
        levels[child] = levels[parent] + 1 if parent >= 0 else 0
    return levels


def tree_mask(parents: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the bias of new tokens on each other, f32 [1, length, length].

    The bias is 0 if the key is the query or one of its ancestors, and the lowest f32 elsewhere.
    """
    length = len(parents)
    seen = np.eye(length, dtype=bool)
    for child, parent in enumerate(parents):
        if parent >= 0:
            seen[child] |= seen[parent]
    return np.where(seen, np.float32(0), np.finfo(np.float32).min)[None]
