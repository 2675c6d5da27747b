"""Read the tokens and positions that callers feed to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphpass.errors import UsageError
from graphpass.ir.inputs import EMBEDDINGS, TARGET_STATES
from graphpass.runtime.sessions.embeddings import Embed, Embeddings, is_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import ArrayLike, NDArray

    from graphpass.runtime.sessions.inputs import InputPlan


class TokenReader:
    """Reads tokens as ids; embeddings are represented by their hashes, see `Embeddings`."""

    def __init__(self, inputs: InputPlan) -> None:
        """Begin without embeddings.

        Args:
            inputs: The inputs of the session's model.
        """
        rows = f"{TARGET_STATES} with the id" if inputs.states else EMBEDDINGS
        self._embeddings = Embeddings(inputs.hidden, inputs.levels, rows) if inputs.takes_embeddings else None
        self._axes = inputs.axes

    def embed_with(self, embed: Embed) -> None:
        """Accept token ids as well, from now on.

        Args:
            embed: Maps ids to embeddings.

        Raises:
            UsageError: GP240, the model has an input for token ids.
        """
        if self._embeddings is None:
            raise UsageError("GP240", "the model accepts token ids, not embeddings", "feed it ids")
        self._embeddings.embed = embed

    def forget(self) -> None:
        """Drop all embeddings."""
        if self._embeddings is not None:
            self._embeddings.forget()

    def in_rows(self, tokens: ArrayLike, *, one_each: bool = False) -> NDArray[Any]:
        """Return tokens with a batch axis.

        Args:
            tokens: Ids or embeddings, with or without the axis.
            one_each: Whether tokens without a batch axis are one token of each row, instead of one row.
        """
        array = np.asarray(tokens)
        is_embedded = self._embeddings is not None and not is_ids(array)
        if not is_embedded:
            array = np.asarray(array, np.int64)
        if array.ndim == (2 if is_embedded else 1):
            return array[:, None] if one_each else array[None]
        return array

    def ids(
        self, tokens: ArrayLike, name: str, used: Callable[[], Iterable[NDArray[np.int64]]] | None = None
    ) -> NDArray[np.int64]:
        """Return ids, or hashes of embeddings, which are stored.

        Args:
            tokens: Ids [batch, length], or embeddings [batch, length, hidden].
            name: Name of the tokens in messages.
            used: Returns the hashes of tokens that may be fed again; others may be dropped. By default none is dropped.

        Returns:
            int64 [batch, length].

        Raises:
            UsageError: GP241, tokens have another rank or are empty.
        """
        if self._embeddings is not None:
            if used is not None:
                self._embeddings.keep(used)
            return self._embeddings.number(tokens)
        ids = np.asarray(tokens, np.int64)
        if ids.ndim != 2 or not ids.size:
            raise UsageError("GP241", f"{name} must be [batch, length] and not empty, but is {list(ids.shape)}")
        return ids

    def embeddings(self, ids: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Return embeddings by their hashes.

        Args:
            ids: Hashes, int64 [batch, length].

        Returns:
            f32 [batch, length, hidden]; ``None`` if the model reads ids.
        """
        return None if self._embeddings is None else self._embeddings.of(ids)

    def positions(self, position_ids: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return positions with the leading axes that the model reads.

        Args:
            position_ids: Integers, [batch, length] or [axes, batch, length].
            shape: [batch, length] of the tokens.

        Returns:
            int64 [axes, batch, length]; models with one position per token have no leading axes.

        Raises:
            UsageError: GP241, ``position_ids`` has another shape.
        """
        array = np.asarray(position_ids, np.int64)
        wanted = (*self._axes, *shape)
        if array.shape not in (shape, wanted):
            raise UsageError("GP241", f"position_ids must be {list(wanted)}, but is {list(array.shape)}")
        # Runtimes reject read-only arrays.
        return array if array.shape == wanted else np.broadcast_to(array, wanted).copy()
