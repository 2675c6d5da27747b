"""Runs a padded batch on a model that cannot see which tokens are padding in front: one row at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.stepping import absorbs_attention, absorbs_padding

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession

__all__ = ["RowByRow", "is_undefined_behind_padding", "misreads_left_padding", "takes_positions"]

#: Operators of ONNX Runtime that are told how many positions of a row count, and take the first ones for them.
_COUNT_FROM_THE_FRONT = ("GroupQueryAttention", "SparseAttention")


def misreads_left_padding(model: Model) -> bool:
    """Whether ``model`` takes padding in front for tokens, although it has an attention mask."""
    linear = model.analysis(analyze_caches).of_kind("linear")
    counts = any(True for _ in model.graph.of_op(*_COUNT_FROM_THE_FRONT))
    return counts or any(absorbs_padding(model, cache) for cache in linear)


def is_undefined_behind_padding(model: Model) -> bool:
    """Whether ``model`` computes with what attention gives for padding in front, where a query sees no key at all."""
    linear = model.analysis(analyze_caches).of_kind("linear")
    return any(absorbs_padding(model, cache) and absorbs_attention(model, cache) for cache in linear)


def takes_positions(model: Model) -> bool:
    """Whether ``model`` is told the positions of tokens. One that counts them itself counts padding, too."""
    graph = model.graph
    return any(node.name == "position_ids" and graph.uses(node.outputs[0]) for node in graph.of_op("Parameter"))


class RowByRow:
    """A session that gives each row of a batch what its model computes for that row alone, without padding.

    Each forward pass starts over with all tokens of a row, so that one session serves all rows.
    """

    def __init__(self, session: DecodeSession) -> None:
        """Nothing was fed yet.

        Args:
            session: Whose batch is not fixed; it is reset all the time.
        """
        self._session = session
        self._ids: NDArray[np.int64] | None = None
        self._last: dict[str, Array] = {}

    @property
    def logits(self) -> Array:
        """As `DecodeSession.logits`."""
        return self._last[self._session.logits_output]

    def reset(self) -> None:
        """Forget all tokens."""
        self._ids = None
        self._last = {}

    def forward(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> dict[str, Array]:
        """Run new tokens ``[batch, length]``; results at padding are 0.

        Outputs that are not ``[batch, length, ..]`` or ``[batch, 1, ..]`` are left out.
        """
        self._ids = ids if self._ids is None else np.concatenate([self._ids, ids], axis=1)
        length = ids.shape[1]
        rows = [self._row(row[real != 0], length) for row, real in zip(self._ids, mask, strict=True)]
        self._last = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        return self._last

    def _row(self, tokens: NDArray[np.int64], length: int) -> dict[str, Array]:
        self._session.reset()
        outputs = self._session.forward(tokens[None], np.ones((1, len(tokens)), np.int64))
        per_token = {name: array for name, array in outputs.items() if array.ndim >= 2 and array.shape[0] == 1}
        return {name: _aligned(array, len(tokens), length) for name, array in per_token.items()}


def _aligned(output: Array, tokens: int, length: int) -> Array:
    """``output`` of ``tokens`` as that of the last ``length``: cut, or with zeros in front."""
    if output.shape[1] != tokens:
        return output
    missing = max(length - tokens, 0)
    widths = [(0, 0), (missing, 0), *([(0, 0)] * (output.ndim - 2))]
    padded: Array = np.pad(output[:, -length:], widths)
    return padded
