"""Tokens that a session was fed, and the outputs for the newest ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphpass.runtime.sessions.inputs import Array


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens in logical order, as they were fed.

    Attributes:
        ids: int64 [batch, length]; hashes of embeddings for models with input ``inputs_embeds``.
        mask: int64 [batch, length], 0 for padding.
        positions: int64 [batch, length], or [axes, batch, length] if a token has several.
    """

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]
    positions: NDArray[np.int64]

    @property
    def length(self) -> int:
        """Return the number of tokens per row, padding included."""
        return int(self.ids.shape[1])

    def part(self, start: int, stop: int) -> Tokens:
        """Return the tokens in a range of columns.

        Args:
            start: The first column.
            stop: The end of the range, exclusive.
        """
        new = slice(start, stop)
        return Tokens(self.ids[:, new], self.mask[:, new], self.positions[..., new])

    def rows(self, rows: NDArray[np.int64]) -> Tokens:
        """Return the tokens of some rows.

        Args:
            rows: Indices of the rows, int64 [n].
        """
        return Tokens(self.ids[rows], self.mask[rows], self.positions[..., rows, :])

    def then(self, later: Tokens) -> Tokens:
        """Return these tokens with ``later`` ones appended."""
        return Tokens(
            np.concatenate([self.ids, later.ids], axis=1),
            np.concatenate([self.mask, later.mask], axis=1),
            np.concatenate([self.positions, later.positions], axis=-1),
        )

    @property
    def end(self) -> NDArray[np.int64]:
        """Return int64 [batch]: the largest position of each row plus 1, without padding."""
        ends = np.where(self.mask == 1, self.positions, -1).max(axis=-1, initial=-1) + 1
        largest: NDArray[np.int64] = ends.max(axis=tuple(range(ends.ndim - 1)))
        return largest


def newest(results: Sequence[dict[str, Array]], runs: Sequence[int], length: int) -> dict[str, Array]:
    """Return the outputs for the last ``length`` tokens that were fed.

    Args:
        results: Outputs of each run by name.
        runs: Number of tokens of each run.
        length: Number of tokens, at least 1.

    Returns:
        Outputs for these tokens, concatenated along axis 1. An output without one entry per token (axis 1 is shorter)
        is that of the last run.
    """
    if len(runs) == 1 and runs[0] == length:
        return results[0]
    return {name: _newest([result[name] for result in results], runs, length) for name in results[-1]}


def _newest(outputs: Sequence[Array], runs: Sequence[int], length: int) -> Array:
    newest: list[Array] = []
    for output, size in zip(reversed(outputs), reversed(runs), strict=True):
        of_each = output.ndim > 1 and output.shape[1] == size
        newest.append(output[:, -min(size, length) :] if of_each else output)
        length -= size
        if length <= 0 or not of_each:
            break
    return newest[0] if len(newest) == 1 else np.concatenate(newest[::-1], axis=1)
