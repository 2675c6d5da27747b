"""Generation by a session on the CPU, and comparison of other runtimes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy
from numpy.typing import NDArray

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.errors import UnsupportedError

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.session import DecodeSession

Rows: TypeAlias = "list[list[int]]"

#: Prompts: a single one, and a left-padded batch of two prompts of different lengths.
_ALONE: tuple[Rows, ...] = ([[5, 9, 17, 3, 11]],)
_PADDED: tuple[Rows, ...] = ([[7, 2, 8], [4, 6, 1, 9, 3, 12]],)

STEPS = 6

#: Tolerance of logits, relative to the largest logit; up to 2e-4 was measured in f32 on SwiftShader.
_TOLERANCE = {"f32": 5e-3, "f16": 5e-2}


@dataclass(frozen=True, slots=True)
class Generated:
    """Tokens generated for a batch.

    Attributes:
        tokens: New tokens of each row.
        logits: Logits after the prompts, f32 ``[rows, vocabulary]``.
    """

    tokens: Rows
    logits: NDArray[numpy.float32]


def batches_for(model: Model) -> tuple[Rows, ...]:
    """Return the prompts of a trial; without padding for hybrids, whose states absorb it."""
    return _ALONE if analyze_caches(model).kind != "kv" else (*_ALONE, *_PADDED)


def on_cpu(model: Model, batches: tuple[Rows, ...]) -> list[Generated] | str:
    """Generate on ONNX Runtime's CPU provider.

    Args:
        model: The model.
        batches: Prompts of each batch, see `generate`.

    Returns:
        A result for each batch, or the reason why the provider fails.
    """
    from graphpass.runtime import open_session

    try:
        session = open_session(model)
        return [generate(session, rows) for rows in batches]
    except UnsupportedError as error:
        return f"the reference on the CPU provider fails: {error.message}"


def generate(session: DecodeSession, rows: Rows) -> Generated:
    """Generate `STEPS` tokens greedily.

    Args:
        session: The session, which is reset.
        rows: Token ids of each prompt; shorter prompts are padded on the left.

    Returns:
        The tokens, with the logits of the first in f32.

    Raises:
        UnsupportedError: The runtime fails.
    """
    width = max(map(len, rows))
    ids = numpy.array([[0] * (width - len(row)) + row for row in rows])
    mask = numpy.array([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    logits = session.prefill(ids, None if mask.all() else mask)[:, -1]
    tokens, first = [logits.argmax(-1)], logits
    while len(tokens) < STEPS:
        tokens.append(session.step(tokens[-1][:, None])[:, -1].argmax(-1))
    return Generated(numpy.stack(tokens, 1).tolist(), first.astype(numpy.float32))


def largest_difference(right: list[Generated], ours: list[Generated]) -> float:
    """Return the largest absolute difference of logits.

    Args:
        right: Results of the reference.
        ours: Results of the tested runtime, of the same batches.
    """
    return max(
        float(numpy.abs(expected.logits - actual.logits).max()) for expected, actual in zip(right, ours, strict=True)
    )


def generated_difference(right: list[Generated], ours: list[Generated], model: Model) -> str | None:
    """Return the first difference above the tolerance; ``None`` without one.

    Args:
        right: Results of the reference.
        ours: Results of the tested runtime, of the same batches.
        model: The model. With f16 caches, the tolerance is larger, and tokens may differ.
    """
    in_half = any(cache.element_type == "f16" for cache in analyze_caches(model).caches)
    tolerance = _TOLERANCE["f16" if in_half else "f32"]
    for expected, actual in zip(right, ours, strict=True):
        largest = largest_difference([expected], [actual])
        if not largest <= tolerance * max(1.0, float(numpy.abs(expected.logits).max())):
            return f"logits differ by {largest:.2g}"
        # In f16, rounding may change which of two nearly equal logits is larger.
        if not in_half and expected.tokens != actual.tokens:
            return f"tokens are {actual.tokens}, not {expected.tokens}"
    return None
