"""Hold a model against itself: prompts fed in two ways, rows alone and together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.equations.token_weights import find_weighing
from graphpass.progress import advance, expect
from graphpass.verify.difference import Tolerance, difference
from graphpass.verify.readings import InParts, RowByRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession
    from graphpass.verify.prompts import Vocabulary

#: Tokens of the prompt: longer than the chunks (8 and 16) in which exports of recurrent layers were wrong.
_LENGTH = 20

#: Kernels of one row and of many round in different orders, which is not a contradiction.
_LEEWAY = 10


def contradictions(session: DecodeSession, tolerance: Tolerance, vocabulary: Vocabulary) -> list[str]:
    """Return how a model contradicts itself, with the largest difference of its logits.

    Args:
        session: A session of the model; it is reset.
        tolerance: Differences up to ten times this are rounding.
        vocabulary: Chooses the prompts.
    """
    batch = session.fixed_batch
    expect(2 if batch is not None else 4, "runs")
    # Without caches each step goes through the whole sequence again, and does no more than the first.
    fed = _LENGTH if session.has_caches or session.last_only else 1
    ids = np.array([vocabulary.prompt(_LENGTH)] * (batch or 1), np.int64)
    at_once = _logits(session, session, ids)
    one_by_one = _logits(session, InParts(session, 1), ids[:, :fed])[:, -at_once.shape[1] :]
    sentences = []
    if words := _difference(at_once[:, : one_by_one.shape[1]], one_by_one, tolerance):
        sentences.append(f"a prompt of {_LENGTH} tokens at once and token by token: {words}")
    if batch is None:
        rows = np.array([vocabulary.prompt(_LENGTH) for _ in range(2)], np.int64)
        together, alone = (_logits(session, way, rows) for way in (session, RowByRow(session)))
        if words := _difference(together, alone, tolerance):
            sentences.append(f"rows in a batch of 2 and alone: {words}")
    return sentences


def other_columns(model: Model) -> list[str]:
    """Return inconsistencies of a model that sessions avoid."""
    if not model.analysis(find_weighing).of_others:
        return []
    words = "several tokens after a padded past are weighed by the first columns of attention_mask"
    return [f"{words}; fed one by one here"]


def _logits(session: DecodeSession, way: DecodeSession | InParts | RowByRow, ids: NDArray[np.int64]) -> Array:
    """Return the logits of a prompt that is fed in one way."""
    way.reset()
    logits = way.forward(ids, np.ones_like(ids))[session.logits_output]
    advance()
    return logits.copy()


def _difference(left: Array, right: Array, tolerance: Tolerance) -> str:
    """Return the largest difference beyond rounding, in words; nothing if there is none."""
    if (np.isfinite(left) != np.isfinite(right)).any():
        return "one of the two is not finite"
    leeway = Tolerance(_LEEWAY * tolerance.absolute, _LEEWAY * tolerance.relative)
    divergence = difference(right, left, None, leeway)
    return "" if divergence.index is None else f"logits differ by {divergence.largest:.2g}"
