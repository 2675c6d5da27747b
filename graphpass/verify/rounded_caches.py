"""Verify models with caches in integers.

Rounding of caches changes logits by more than a fault may, so it is verified separately:

1. Both models with dequantized caches agree within the usual tolerance.
2. Scales that the reference does not have fit the contents of the caches.
3. The logits of the unchanged candidate differ from those of its dequantized form, or of a reference with the same
   scales, by no more than rounding explains.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from graphpass.analysis.caches.quantized import CacheScale, find_cache_scales
from graphpass.runtime.embedding_model import let_take_ids
from graphpass.verify.cache_samples import sample_caches
from graphpass.verify.comparison import Comparison
from graphpass.verify.prompts import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from graphpass.ir.model import Model
    from graphpass.runtime.sessions.inputs import Array
    from graphpass.runtime.sessions.session import DecodeSession

ROUNDED = "rounded caches"

#: Maximum relative rounding error of a cache, as root mean square, by bits. On all decoders of the fixtures the errors
#: are up to 1.2 % and 13 %; with scales of half the size at least 9 % and 30 %.
_MOST = {8: 0.05, 4: 0.25}

#: The same error of logits. Measured: 0.6 % to 6 %, and 6 % to 49 %. Independent logits differ by 141 %.
_MOST_OF_LOGITS = {8: 0.2, 4: 0.8}

#: Length of the prompt that fills the caches, and number of ids skipped before it, which calibrations use.
_PROMPT, _LEFT_OUT = 48, 256

#: Share of values beyond the range of the scales from which on the scales are reported as too small.
_CUT = 0.01


def dequantized(model: Model) -> Model:
    """Return a copy with caches in the query's type; ``model`` if no cache is quantized."""
    if not model.analysis(find_cache_scales):
        return model
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.rounded_caches import dequantize_caches

    assert isinstance(model, OnnxModel)
    copy = model.clone()
    dequantize_caches(copy)
    return copy


def without_rounding(proven: Comparison, reference: Model) -> Comparison:
    """Add a line to `Comparison.skipped` if the reference ran with dequantized caches.

    Args:
        proven: The comparison of both models with dequantized caches.
        reference: The reference model before dequantization.

    Returns:
        The comparison, unchanged if ``reference`` has no such caches.
    """
    scales = reference.analysis(find_cache_scales).values()
    if not scales:
        return proven
    bits = min(scale.bits for scale in scales)
    words = (
        f"rounding of caches to {bits} bits: the reference ran with its caches dequantized, as the result keeps them"
    )
    return replace(proven, skipped=(*proven.skipped, words))


def rounds_alike(reference: Model, candidate: Model) -> bool:
    """Return whether all quantized caches of one model have another's scales.

    Args:
        reference: The model with the expected scales; it may quantize further caches.
        candidate: The model whose scales are compared, by name of the cache.
    """
    return not _own_scales(reference, candidate)


def _own_scales(reference: Model, candidate: Model) -> dict[str, CacheScale]:
    """Return the scales of ``candidate`` that the reference lacks, by name of the cache."""
    known = reference.analysis(find_cache_scales)
    scales = candidate.analysis(find_cache_scales)
    return {name: scale for name, scale in scales.items() if name not in known or not scale.equals(known[name])}


def with_rounding(
    proven: Comparison, reference: Model, candidate: Model, opened: Callable[..., DecodeSession]
) -> Comparison:
    """Add a divergence to a comparison if scales of ``candidate`` do not fit its caches.

    Args:
        proven: The comparison of both models with dequantized caches.
        reference: The reference model.
        candidate: The candidate model.
        opened: Opens a session, as `graphpass.runtime.open_session`.

    Returns:
        The comparison; descriptions of its sequences state that caches are dequantized.

    Raises:
        GraphpassError: As `graphpass.runtime.open_session` and `DecodeSession.forward`.
    """
    runs = tuple(replace(run, description=f"caches dequantized: {run.description}") for run in proven.sequences)
    comparison = replace(proven, sequences=runs)
    reason = find_coarse_scale(reference, candidate, opened) if proven.passed else None
    if reason is None:
        return comparison
    return comparison.diverging(ROUNDED, reason)


def too_much(candidate: Model, shares: Mapping[str, float]) -> str | None:
    """Return the output that differs by more than rounding explains, as text; ``None`` without one.

    Args:
        candidate: A model with caches in integers.
        shares: Relative difference of each output by name, see `PooledComparer.shares`.
    """
    bits = min(scale.bits for scale in candidate.analysis(find_cache_scales).values())
    worst = max(shares, key=lambda name: shares[name])
    if shares[worst] <= _MOST_OF_LOGITS[bits]:
        return None
    allowed = f"where {_MOST_OF_LOGITS[bits]:.0%} are allowed"
    return f"rounding to {bits} bits has an error of {shares[worst]:.0%} in output {worst}, {allowed}"


def find_coarse_scale(reference: Model, candidate: Model, opened: Callable[..., DecodeSession]) -> str | None:
    """Return the cache with the largest rounding error by new scales, if above the limit.

    Scales that the reference has, too, are not checked.

    Args:
        reference: The reference model.
        candidate: A model with caches in integers.
        opened: Opens a session, as `graphpass.runtime.open_session`.

    Raises:
        GraphpassError: As `graphpass.runtime.open_session` and `DecodeSession.forward`.
    """
    scales = _own_scales(reference, candidate)
    if not scales:
        return None
    if (unknown := next((name for name, scale in scales.items() if scale.scale is None), None)) is not None:
        return f"the scales of cache {unknown} are not constants"
    wide = candidate.analysis(dequantized)
    session = opened(wide)
    let_take_ids(wide, session)
    vocabulary = Vocabulary.of(session)
    vocabulary.prompt(_LEFT_OUT)
    contents = sample_caches(session, [vocabulary.prompt(_PROMPT)]).contents
    losses = {name: rounding_loss(contents[name], scale) for name, scale in scales.items() if name in contents}
    worst = max(losses, key=lambda name: losses[name] / _MOST[scales[name].bits], default=None)
    if worst is None or losses[worst] <= _MOST[scales[worst].bits]:
        return None
    scale = scales[worst]
    cut = float(np.mean(np.abs(contents[worst]) > scale.largest))
    why = f"{cut:.0%} of its values exceed the range of its scales" if cut > _CUT else "its scales are too coarse"
    return (
        f"rounding to {scale.bits} bits has an error of {losses[worst]:.0%} in cache {worst}, where "
        f"{_MOST[scale.bits]:.0%} are allowed: {why}"
    )


def rounding_loss(content: Array, scale: CacheScale) -> float:
    """Return the relative rounding error of a cache, as root mean square.

    Args:
        content: Values before rounding, ``[heads, positions, head_dim]``.
        scale: The scale and number of bits; constant scales only.
    """
    wide = content.astype(np.float64)
    size = float(np.linalg.norm(wide))
    return float(np.linalg.norm(scale.rounded(content) - wide)) / size if size else 0.0
