"""Prove models whose caches are kept in integers.

Rounding moves logits by more than a fault does, so it is proven by itself. Both models, with their caches dequantized,
have to compute the same within the usual tolerance. Scales that the reference does not have must then suit what the
caches hold. At last the candidate runs as it is: it has to give the logits of its dequantized form, or of a reference
with the same scales, but for a share that rounding explains.
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

#: Largest share of a cache's size, root of mean squares, that rounding may take, by bits. On all decoders among the
#: fixtures it takes up to 1.2 % and 13 %; with scales of half the size 9 % and 30 % at least.
_MOST = {8: 0.05, 4: 0.25}

#: Likewise of logits: 0.6 % to 6 %, and 6 % to 49 %. Logits that have nothing to do with each other differ by 141 %.
_MOST_OF_LOGITS = {8: 0.2, 4: 0.8}

#: Tokens of the prompt that fills the caches; those that calibrations take first are left out.
_PROMPT, _LEFT_OUT = 48, 256

#: Share of values beyond the scales that shows them to be too small.
_CUT = 0.01


def dequantized(model: Model) -> Model:
    """Keep caches of ``model`` in the query's type; return itself without any in integers."""
    if not model.analysis(find_cache_scales):
        return model
    from graphpass.dialects.onnx.model import OnnxModel
    from graphpass.dialects.onnx.rounded_caches import dequantize_caches

    assert isinstance(model, OnnxModel)
    copy = model.clone()
    dequantize_caches(copy)
    return copy


def without_rounding(proven: Comparison, reference: Model) -> Comparison:
    """Report that the reference ran with its caches dequantized, if they are quantized."""
    scales = reference.analysis(find_cache_scales).values()
    if not scales:
        return proven
    bits = min(scale.bits for scale in scales)
    words = (
        f"rounding of caches to {bits} bits: the reference ran with its caches dequantized, as the result keeps them"
    )
    return replace(proven, skipped=(*proven.skipped, words))


def rounds_alike(reference: Model, candidate: Model) -> bool:
    """Return whether all quantized caches of ``candidate`` have the reference's scales."""
    return not _own_scales(reference, candidate)


def _own_scales(reference: Model, candidate: Model) -> dict[str, CacheScale]:
    """Return the scales of ``candidate`` that the reference does not have, by cache."""
    known = reference.analysis(find_cache_scales)
    scales = candidate.analysis(find_cache_scales)
    return {name: scale for name, scale in scales.items() if name not in known or not scale.equals(known[name])}


def with_rounding(
    proven: Comparison, reference: Model, candidate: Model, opened: Callable[..., DecodeSession]
) -> Comparison:
    """Add the first scale of ``candidate`` that does not suit to a comparison.

    Args:
        proven: The comparison.
        reference: The other model.
        candidate: The model in question.
        opened: Opens a model, as `graphpass.runtime.open_session`.

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
    """Return the output that differs by more than rounding explains, if any.

    Args:
        candidate: A model with caches in integers.
        shares: Share of each output that rounding took.
    """
    bits = min(scale.bits for scale in candidate.analysis(find_cache_scales).values())
    worst = max(shares, key=lambda name: shares[name])
    if shares[worst] <= _MOST_OF_LOGITS[bits]:
        return None
    allowed = f"where {_MOST_OF_LOGITS[bits]:.0%} count as right"
    return f"rounding to {bits} bits takes {shares[worst]:.0%} of output {worst}, {allowed}"


def find_coarse_scale(reference: Model, candidate: Model, opened: Callable[..., DecodeSession]) -> str | None:
    """Return the cache that loses too much to scales that the reference lacks.

    Args:
        reference: The other model.
        candidate: A model with caches in integers.
        opened: Opens a model, as `graphpass.runtime.open_session`.

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
    why = f"{cut:.0%} of its values are larger than its scales reach" if cut > _CUT else "its scales are wide"
    return (
        f"rounding to {scale.bits} bits takes {losses[worst]:.0%} of cache {worst}, where {_MOST[scale.bits]:.0%} "
        f"count as right: {why}"
    )


def rounding_loss(content: Array, scale: CacheScale) -> float:
    """Return the share of ``content`` that rounding takes, by roots of mean squares."""
    wide = content.astype(np.float64)
    size = float(np.linalg.norm(wide))
    return float(np.linalg.norm(scale.rounded(content) - wide)) / size if size else 0.0
