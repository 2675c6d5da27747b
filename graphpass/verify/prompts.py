"""Prompts of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from graphpass.analysis.caches.encoders import is_encoder
from graphpass.errors import UsageError
from graphpass.verify.token_ids import embedded_ids

if TYPE_CHECKING:
    from graphpass.runtime.sessions.session import DecodeSession

#: Number of text tokens before the image.
_PICTURED = 2


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """The inputs of a prefill.

    Attributes:
        description: The prompt, as text.
        ids: Token ids, int64 [batch, length].
        mask: Attention mask, int64 [batch, length], 0 at padding.
        counts_padding: Whether padding counts in positions.
        positions: Positions, int64 [axes, batch, length]; ``None`` if the session counts them.
    """

    description: str
    ids: NDArray[np.int64]
    mask: NDArray[np.int64]
    counts_padding: bool = False
    positions: NDArray[np.int64] | None = None

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        """Return the prompts without their padding."""
        return tuple(tuple(row[keep].tolist()) for row, keep in zip(self.ids, self.mask.astype(bool), strict=True))


def rectangular(description: str, rows: list[tuple[int, ...]]) -> Prompt:
    """Return a batch of prompts of equal length.

    Args:
        description: Start of the description; the length follows.
        rows: Token ids of each row, of equal length.
    """
    ids = np.array(rows, np.int64)
    return Prompt(f"{description} of {ids.shape[1]} tokens", ids, np.ones_like(ids))


def padded(description: str, rows: list[tuple[int, ...]], side: Literal["left", "right"] = "left") -> Prompt:
    """Return a batch of prompts, padded on one side with id 0.

    Args:
        description: Start of the description; lengths and side follow.
        rows: Token ids of each row.
        side: Side of the padding.
    """
    width = max(map(len, rows))

    def wide(row: tuple[int, ...], filling: tuple[int, ...]) -> tuple[int, ...]:
        return filling + row if side == "left" else row + filling

    ids = np.array([wide(row, (0,) * (width - len(row))) for row in rows], np.int64)
    mask = np.array([wide((1,) * len(row), (0,) * (width - len(row))) for row in rows], np.int64)
    return Prompt(f"{description} of {_listed(rows)} tokens, padded on the {side}", ids, mask)


def padded_inside(description: str, rows: list[tuple[int, ...]]) -> Prompt:
    """Return a batch of prompts, padded with id 0 after the first token.

    Padding counts in positions, as in models that compute positions without the attention mask.

    Args:
        description: Start of the description; the lengths follow.
        rows: Token ids of each row, at least one.
    """
    left = padded(description, [row[1:] for row in rows])
    ids = np.concatenate([np.array([row[:1] for row in rows], np.int64), left.ids], axis=1)
    mask = np.pad(left.mask, [(0, 0), (1, 0)], constant_values=1)
    words = f"{description} of {_listed(rows)} tokens, padded after the first"
    return Prompt(words, ids, mask, counts_padding=True)


def pictured(description: str, rows: list[tuple[int, ...]], axes: int) -> Prompt:
    """Return prompts with an image of 2 x 2 patches after two text tokens.

    Positions are those of Qwen2-VL: constant time, height and width by patch, and text after the largest position.

    Args:
        description: Start of the description.
        rows: Token ids of each row, of equal length.
        axes: Number of positions of each token.
    """
    ids = np.array(rows, np.int64)
    text = np.arange(ids.shape[1] - 4)
    before, after = text[:_PICTURED], text[_PICTURED:] + 2
    patches = (np.zeros(4, np.int64), np.array([0, 0, 1, 1]), *[np.array([0, 1, 0, 1])] * (axes - 2))[:axes]
    positions = np.stack([np.concatenate([before, _PICTURED + patch, after]) for patch in patches])
    repeated = np.repeat(positions[:, None], len(rows), axis=1)
    words = f"{description} of {ids.shape[1]} tokens, 4 of an image"
    return Prompt(words, ids, np.ones_like(ids), positions=repeated)


def _listed(rows: list[tuple[int, ...]]) -> str:
    *others, last = (str(len(row)) for row in rows)
    return f"{', '.join(others)} and {last}" if others else last


class Vocabulary:
    """A seeded source of prompts."""

    def __init__(self, size: int) -> None:
        """Seed the generator; ``size`` is the number of token ids."""
        self.size = size
        self._generator = np.random.Generator(np.random.PCG64(20))

    @classmethod
    def of(cls, session: DecodeSession) -> Vocabulary:
        """Return the vocabulary of a model.

        Its size is that of the logits' last axis. Encoders have other outputs; their size is the number of rows of the
        embedding table.

        Args:
            session: A session of the model; it is reset, and runs one token in each row.

        Raises:
            GraphpassError: As `DecodeSession.prefill`.
        """
        size = session.prefill(np.zeros((session.fixed_batch or 1, 1), np.int64)).shape[-1]
        model = session.store.model
        return cls((model.analysis(embedded_ids) if model.analysis(is_encoder) else None) or size)

    def prompt(self, length: int) -> tuple[int, ...]:
        """Return the next pseudo-random prompt of ``length`` ids."""
        return tuple(int(token) for token in self._generator.integers(0, self.size, length))

    def check(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return ``ids`` if they are valid.

        Raises:
            UsageError: GP250, the prompt is empty, or an id is outside the vocabulary.
        """
        if not ids:
            raise UsageError("GP250", "a prompt needs at least one token id")
        for token in ids:
            if not 0 <= token < self.size:
                reason = f"prompt id {token} is outside the model's vocabulary of {self.size}"
                raise UsageError("GP250", reason, f"expected ids from 0 to {self.size - 1}")
        return ids
