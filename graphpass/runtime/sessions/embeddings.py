"""Identify the embeddings that a session was fed by content hash."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphpass.errors import UsageError
from graphpass.ir.inputs import EMBEDDINGS

Embed = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Maps token ids [batch, length] to their embeddings [batch, length, hidden]."""

#: Number of rows up to which unused rows are not dropped.
_FEW = 1024


class Embeddings:
    """Identifies embeddings by content hash, and stores those that may be fed again.

    The hash is a digest of the row's f32 bytes, equal in all processes.

    Attributes:
        hidden: Declared size of a row; ``None`` if it is dynamic.
        embed: Maps token ids to rows; ``None`` if only embeddings can be fed.
    """

    def __init__(self, hidden: int | None, levels: int = 0, name: str = EMBEDDINGS) -> None:
        """Begin without rows.

        Args:
            hidden: Declared size of a row; ``None`` if it is dynamic.
            levels: Number of visual features in a row, after the embedding and of its size.
            name: Name of the rows in messages.
        """
        self.hidden, self._name = hidden, name
        self._text = None if hidden is None else hidden // (1 + levels)
        self.embed: Embed | None = None
        self._rows: dict[int, NDArray[np.float32]] = {}
        self._enough = _FEW

    def number(self, tokens: ArrayLike) -> NDArray[np.int64]:
        """Return the hash of each row, and store the rows.

        Args:
            tokens: Embeddings [batch, length, hidden], with or without visual features, or ids [batch, length] if
                `embed` is set.

        Returns:
            int64 [batch, length].

        Raises:
            UsageError: GP241, the shape is wrong, or ids were fed without `embed`.
        """
        array = np.asarray(tokens)
        if is_ids(array):
            if self.embed is None:
                message = f"expected embeddings [batch, length, hidden], got ids {list(array.shape)}"
                raise UsageError("GP241", message, "call embed_with on the session to feed ids")
            array = self.embed(array.astype(np.int64))
        rows = np.asarray(array, np.float32)
        fits = self.hidden is None or rows.shape[-1] in (self._text, self.hidden)
        if rows.ndim != 3 or not rows.size or not fits:
            size = "hidden" if self.hidden is None else self._text
            message = f"{self._name} must be [batch, length, {size}] and not empty, but is {list(rows.shape)}"
            raise UsageError("GP241", message)
        # A copy, since callers may change their array before a row is fed again; features of text are 0.
        rows = np.pad(rows, [(0, 0), (0, 0), (0, (self.hidden or rows.shape[2]) - rows.shape[2])])
        ids = numbers(rows)
        self._rows.update(zip(ids.ravel().tolist(), rows.reshape(-1, rows.shape[2]), strict=True))
        return ids

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the rows with these hashes, f32 [batch, length, hidden]."""
        rows = np.stack([self._rows[number] for number in ids.ravel().tolist()])
        return rows.reshape(*ids.shape, rows.shape[-1])

    def forget(self) -> None:
        """Drop all rows."""
        self._rows = {}
        self._enough = _FEW

    def keep(self, used: Callable[[], Iterable[NDArray[np.int64]]]) -> None:
        """Drop unused rows once the number of rows has doubled.

        Args:
            used: Returns the hashes in use, int64 arrays of any shape.
        """
        if len(self._rows) > self._enough:
            kept = {number for ids in used() for number in ids.ravel().tolist()}
            # A view of one row would keep the array of its whole prompt.
            self._rows = {number: self._rows[number].copy() for number in kept}
            self._enough = max(_FEW, 2 * len(self._rows))


def is_ids(tokens: NDArray[np.generic]) -> bool:
    """Return whether ``tokens`` are integers, and so ids rather than embeddings."""
    return tokens.dtype.kind in "iu"


def numbers(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return hashes, int64 [batch, length], of rows f32 [batch, length, hidden]."""
    digests = (blake2b(row.tobytes(), digest_size=8).digest() for sequence in rows for row in sequence)
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64).reshape(rows.shape[:2])
