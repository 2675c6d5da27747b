"""Feed a model few tokens at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession

#: Most tokens of a part: exports of recurrent layers hold chunks of 64 tokens, of 8 in the smallest models.
MOST_AT_ONCE = 8


class InParts:
    """Runs new tokens in parts of ``most``, for models that compute many at once wrongly."""

    def __init__(self, session: DecodeSession, most: int = MOST_AT_ONCE) -> None:
        self._session, self._most = session, most

    def reset(self) -> None:
        """Forget all tokens."""
        self._session.reset()

    def forward(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> dict[str, Array]:
        """Run new tokens ``[batch, length]``, and return the results of all.

        Outputs without an axis of tokens are those of the last part.
        """
        past, length = mask.shape[1] - ids.shape[1], ids.shape[1]
        parts = []
        for start in range(0, length, self._most):
            part = ids[:, start : start + self._most]
            outputs = self._session.forward(part, mask[:, : past + start + part.shape[1]])
            parts.append({name: array.copy() for name, array in outputs.items()})
        first = parts[0]
        return {
            name: np.concatenate([part[name] for part in parts], axis=1)
            if array.ndim > 1 and array.shape[1] == min(length, self._most)
            else parts[-1][name]
            for name, array in first.items()
        }
