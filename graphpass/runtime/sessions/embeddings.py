"""Know embeddings that were fed by their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphpass.errors import UsageError

Embed = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Maps token ids [batch, length] to their embeddings [batch, length, hidden]."""

#: Rows that are kept before unused ones are looked for.
_FEW = 1024


class Embeddings:
    """Identifies embeddings by content hash, and stores those that may be fed again.

    The hash is a digest of the row's f32 bytes, equal in all processes.

    Attributes:
        hidden: Size of a row that the model declares; ``None`` if it is dynamic.
        embed: Looks up the rows of token ids; ``None`` if only embeddings can be fed.
    """

    def __init__(self, hidden: int | None) -> None:
        self.hidden = hidden
        self.embed: Embed | None = None
        self._rows: dict[int, NDArray[np.float32]] = {}
        self._enough = _FEW

    def number(self, tokens: ArrayLike) -> NDArray[np.int64]:
        """Return a number for each row, and keep the rows.

        Args:
            tokens: Embeddings [batch, length, hidden], or ids [batch, length] if `embed` knows them.

        Returns:
            int64 [batch, length].

        Raises:
            UsageError: GP241, they are of another shape, or ids without an `embed`.
        """
        array = np.asarray(tokens)
        if is_ids(array):
            if self.embed is None:
                message = f"the model takes embeddings [batch, length, hidden], not ids {list(array.shape)}"
                raise UsageError("GP241", message, "embed_with gives the session the embeddings of ids")
            array = self.embed(array.astype(np.int64))
        rows = np.asarray(array, np.float32)
        if rows.ndim != 3 or not rows.size or self.hidden not in (None, rows.shape[2]):
            size = "hidden" if self.hidden is None else self.hidden
            message = f"inputs_embeds must be [batch, length, {size}] and not empty, but is {list(rows.shape)}"
            raise UsageError("GP241", message)
        # Callers may change their array before a row is fed again.
        rows = rows.copy()
        ids = numbers(rows)
        self._rows.update(zip(ids.ravel().tolist(), rows.reshape(-1, rows.shape[2]), strict=True))
        return ids

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the rows of these numbers, f32 [batch, length, hidden]."""
        rows = np.stack([self._rows[number] for number in ids.ravel().tolist()])
        return rows.reshape(*ids.shape, rows.shape[-1])

    def forget(self) -> None:
        """Drop all rows."""
        self._rows = {}
        self._enough = _FEW

    def keep(self, used: Callable[[], Iterable[NDArray[np.int64]]]) -> None:
        """Drop rows not in ``used`` once they are half of all."""
        if len(self._rows) > self._enough:
            kept = {number for ids in used() for number in ids.ravel().tolist()}
            # A view of one row would keep the array of its whole prompt.
            self._rows = {number: self._rows[number].copy() for number in kept}
            self._enough = max(_FEW, 2 * len(self._rows))


def is_ids(tokens: NDArray[np.generic]) -> bool:
    """Return whether ``tokens`` are whole numbers."""
    return tokens.dtype.kind in "iu"


def numbers(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the number of each row of f32 [batch, length, hidden]."""
    digests = (blake2b(row.tobytes(), digest_size=8).digest() for sequence in rows for row in sequence)
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64).reshape(rows.shape[:2])
