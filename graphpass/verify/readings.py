"""Run models that misread padding or long prompts row by row or in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import absorbs_attention, absorbs_padding
from graphpass.ir.bodies import inlined
from graphpass.ir.operators import NEW_TOKENS, SHAPE_READERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.graph import Graph
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession


#: Maximum tokens of a part. Exports of recurrent layers have chunks of 64 tokens, of 8 in the smallest models.
MOST_AT_ONCE = 8

#: Operators of ONNX Runtime that attend to the first positions of a row, up to a length; index of that input.
_COUNT_FROM_THE_FRONT = {"GroupQueryAttention": 5, "SparseAttention": 8}


def misreads_left_padding(model: Model) -> bool:
    """Return whether ``model`` treats left padding as tokens despite its attention mask."""
    linear = model.analysis(analyze_caches).of_kind("linear")
    counts = counted_from_the_front(model.graph)
    return counts or any(absorbs_padding(model, cache) for cache in linear)


def counted_from_the_front(graph: Graph) -> bool:
    """Return whether attention reads a row's first positions, as many as the mask counts."""
    counts = [node.input(_COUNT_FROM_THE_FRONT[node.op]) for node in graph.of_op(*_COUNT_FROM_THE_FRONT)]
    # Shapes are ignored: a length from the mask's shape is equal for all rows.
    made_of = graph.backward(counts, lambda node: () if node.op in SHAPE_READERS else node.inputs)
    return any(node.op == "Parameter" for node in made_of)


def absorbs_left_padding(model: Model) -> bool:
    """Return whether attention of left padding, which has no visible key, enters linear caches."""
    linear = model.analysis(analyze_caches).of_kind("linear")
    return any(absorbs_padding(model, cache) and absorbs_attention(model, cache) for cache in linear)


def rounds_rows_together(model: Model) -> bool:
    """Return whether activations are rounded by one scale for all rows, padding included."""
    return any(True for _ in inlined(model).graph.of_op("DynamicQuantizeLinear"))


def takes_positions(model: Model) -> bool:
    """Return whether ``model`` reads an input ``position_ids``; other models may count padding."""
    graph = model.graph
    return any(node.name == "position_ids" and graph.uses(node.outputs[0]) for node in graph.of_op("Parameter"))


def takes_several_of_each(graph: Graph) -> bool:
    """Return whether GroupQueryAttention has an input with each row's number of new tokens."""
    return any(node.input(NEW_TOKENS) is not None for node in graph.of_op("GroupQueryAttention"))


class RowByRow:
    """Runs each row of a batch separately, without padding.

    Each forward pass resets the session and runs all tokens of a row again, so that rows can share one session.
    """

    def __init__(self, session: DecodeSession) -> None:
        self._session = session
        self._ids: NDArray[np.int64] | None = None

    def reset(self) -> None:
        """Remove all tokens."""
        self._ids = None

    def forward(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> dict[str, Array]:
        """Run new tokens of all rows.

        Args:
            ids: int64 [batch, length].
            mask: int64 [batch, past + length], 0 at padding.

        Returns:
            The outputs ``[batch, length, ...]`` and ``[batch, 1, ...]`` by name; 0 at padding. Others are omitted, as
            weights of attention, whose sizes differ between rows of different lengths.
        """
        self._ids = ids if self._ids is None else np.concatenate([self._ids, ids], axis=1)
        length = ids.shape[1]
        rows = [self._row(row[real != 0], real[-length:] != 0) for row, real in zip(self._ids, mask, strict=True)]
        shared = [name for name in rows[0] if len({row[name].shape for row in rows}) == 1]
        return {name: np.concatenate([row[name] for row in rows]) for name in shared}

    def _row(self, tokens: NDArray[np.int64], real: NDArray[np.bool_]) -> dict[str, Array]:
        """Return the outputs of one row's last positions; 0 where ``real`` is false."""
        self._session.reset()
        outputs = self._session.forward(tokens[None], np.ones((1, len(tokens)), np.int64))
        rows = {name: array for name, array in outputs.items() if array.ndim >= 2 and array.shape[0] == 1}
        # The logits of a last token have no place among the positions, also after a single token.
        lone = {*self._session.pooled, *([self._session.logits_output] if self._session.last_only else [])}
        return {name: rows[name] if name in lone else _placed(rows[name], len(tokens), real) for name in rows}


def _placed(output: Array, tokens: int, real: NDArray[np.bool_]) -> Array:
    if output.shape[1] != tokens:
        return output
    placed = np.zeros((1, len(real), *output.shape[2:]), output.dtype)
    count = int(real.sum())
    placed[:, real] = output[:, tokens - count :]
    return placed


class InParts:
    """Runs new tokens in parts, for models that compute long prompts incorrectly."""

    def __init__(self, session: DecodeSession, most: int = MOST_AT_ONCE) -> None:
        self._session, self._most = session, most

    def reset(self) -> None:
        """Reset the session."""
        self._session.reset()

    def forward(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> dict[str, Array]:
        """Run new tokens part by part.

        Args:
            ids: int64 [batch, length].
            mask: int64 [batch, past + length], 0 at padding.

        Returns:
            The outputs of all tokens by name; of the last part for outputs without an axis of tokens.
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
