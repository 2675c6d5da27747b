"""Measure the change of logits by OpenVINO plugins that round activations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from graphpass.errors import UnsupportedError, UsageError
from graphpass.ir.values import is_compressed
from graphpass.runtime.embedding_model import let_take_ids
from graphpass.verify.comparison import Comparison
from graphpass.verify.prompts import Vocabulary

if TYPE_CHECKING:
    from graphpass.ir.model import Model
    from graphpass.verify.request import ProofRequest

#: Length of the prompt. The CPU plugin (2026.4.1) changes logits of 40 tokens by 0.2 to 0.5, of few tokens
#: by almost nothing.
_PROMPT = 40

#: Errors of sequences that exceed a model's cache capacity, or the rows of a table.
NO_ROOM = ("GP267", "GP322")


def with_default_rounding(proven: Comparison, candidate: Model, request: ProofRequest) -> Comparison:
    """Add a warning if the plugin rounds activations by default.

    Comparisons run with activations in f32. The plugin rounds them to 8 bits before products with compressed weights,
    unless its property is set otherwise.

    Args:
        proven: The comparison, without rounding of activations.
        candidate: The candidate model.
        request: The settings of the comparison.

    Returns:
        The comparison with a warning, or with the reason why rounding was not compared; unchanged without rounding.

    Raises:
        UnsupportedError: As `graphpass.runtime.open_session` and `DecodeSession.prefill`.
        UsageError: As `graphpass.runtime.open_session` and `DecodeSession.prefill`.
    """
    if candidate.dialect != "openvino" or not is_compressed(candidate.graph):
        return proven
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.runtime.backends.openvino_request import ROUNDING, default_group_size

    assert isinstance(candidate, OpenVINOModel)
    device, properties = request.device, dict(request.properties or {})
    size = default_group_size(candidate, device)
    if size is None or ROUNDING in properties:
        return proven
    sessions = [
        request.opened(candidate, device=device, properties=properties | {ROUNDING: value}) for value in ("0", size)
    ]
    let_take_ids(candidate, *sessions)
    prompt = [Vocabulary.of(sessions[0]).prompt(_PROMPT)] * (sessions[0].fixed_batch or 1)
    try:
        exact, rounded = (session.prefill(prompt) for session in sessions)
    except (UsageError, UnsupportedError) as error:
        if error.id not in NO_ROOM:
            raise
        words = f"activations that {device} rounds by default: the model has no room for {_PROMPT} tokens"
        return replace(proven, skipped=(*proven.skipped, words))
    largest = float(np.abs(exact - rounded).max())
    if not largest:
        return proven
    chosen, again = exact[0].argmax(-1), rounded[0].argmax(-1)
    words = (
        f"{device} rounds activations to 8 bits before products with compressed weights "
        f"({ROUNDING}={size} by default): logits of {_PROMPT} tokens move by {largest:.3g}, and "
        f"{int((chosen != again).sum())} of {len(chosen)} greedy choices change; the comparison ran with {ROUNDING}=0"
    )
    return replace(proven, warnings=(*proven.warnings, words))
