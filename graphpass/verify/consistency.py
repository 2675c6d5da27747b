"""Check a model's self-consistency: tokens at once and one at a time, batches and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.step_tokens import absorbs_padding
from graphpass.analysis.equations.token_weights import find_weighing
from graphpass.progress import advance, expect
from graphpass.verify.difference import Tolerance, difference
from graphpass.verify.prompts import padded
from graphpass.verify.readings import InParts, RowByRow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession
    from graphpass.verify.prompts import Vocabulary

#: Length of the prompt, above the chunk sizes (8 and 16) at which exports of recurrent layers were wrong.
_LENGTH = 20

#: Number of padded positions before the shorter prompt.
_PADDING = 9

#: Factor of the tolerance: kernels for one row and for several sum in different orders.
_LEEWAY = 10


def contradictions(session: DecodeSession, tolerance: Tolerance, vocabulary: Vocabulary) -> list[str]:
    """Return the inconsistencies of a model, each with the largest difference of its logits.

    Args:
        session: A session of the model; it is reset.
        tolerance: A tenth of the accepted difference.
        vocabulary: The source of prompts.
    """
    batch = session.fixed_batch
    expect(2 if batch is not None else 4, "runs")
    # Without caches each step recomputes the whole sequence, so one step suffices.
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


def absorbed_padding(session: DecodeSession, model: Model, tolerance: Tolerance, vocabulary: Vocabulary) -> list[str]:
    """Return the inconsistency of rows padded on the left, if linear caches absorb padding.

    Args:
        session: A session of the model; it is reset.
        model: The model.
        tolerance: A tenth of the accepted difference.
        vocabulary: The source of prompts.
    """
    linear = model.analysis(analyze_caches).of_kind("linear")
    if session.fixed_batch is not None or not session.takes_mask:
        return []
    if not any(absorbs_padding(model, cache) for cache in linear):
        return []
    expect(2, "runs")
    batch = padded("", [vocabulary.prompt(length) for length in (_LENGTH, _LENGTH - _PADDING)])
    together, alone = (_logits(session, way, batch.ids, batch.mask) for way in (session, RowByRow(session)))
    counts = batch.mask[:, -together.shape[1] :, None] != 0
    words = _difference(np.where(counts, together, 0), np.where(counts, alone, 0), tolerance)
    return [f"rows padded on the left and alone: {words}"] if words else []


def other_columns(model: Model) -> list[str]:
    """Return inconsistencies that sessions avoid by feeding tokens one at a time."""
    if not model.analysis(find_weighing).of_others:
        return []
    words = "several tokens after a padded past are multiplied by the first columns of attention_mask"
    return [f"{words}; this comparison feeds them one at a time"]


def _logits(
    session: DecodeSession,
    way: DecodeSession | InParts | RowByRow,
    ids: NDArray[np.int64],
    mask: NDArray[np.int64] | None = None,
) -> Array:
    """Return the logits ``[batch, length, vocabulary]`` of a prompt run by ``way``, without padding by default."""
    way.reset()
    logits = way.forward(ids, np.ones_like(ids) if mask is None else mask)[session.logits_output]
    advance()
    return logits.copy()


def _difference(left: Array, right: Array, tolerance: Tolerance) -> str:
    """Return the largest difference above the accepted one, as text; empty if the arrays agree."""
    if (np.isfinite(left) != np.isfinite(right)).any():
        return "only one of the two is finite"
    leeway = Tolerance(_LEEWAY * tolerance.absolute, _LEEWAY * tolerance.relative)
    divergence = difference(right, left, None, leeway)
    return "" if divergence.index is None else f"logits differ by {divergence.largest:.2g}"
