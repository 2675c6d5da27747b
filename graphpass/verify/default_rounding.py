"""Measure the change of logits by OpenVINO plugins that round activations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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

#: Length of the prompt. The CPU plugin (2026.4.1) changes logits of 40 tokens by 0.2 to 0.5, and those of
#: few tokens hardly.
_PROMPT = 40

#: Errors of sequences that exceed a model's cache capacity, or the rows of a table.
NO_ROOM = ("GP267", "GP322")


@dataclass(frozen=True, slots=True)
class _Default:
    """A default of a plugin that rounds.

    Attributes:
        name: The property.
        exact: The value with which comparisons run.
        value: The default.
        effect: The computation by default, as text after the name of the device.
    """

    name: str
    exact: str
    value: str
    effect: str


def with_default_rounding(proven: Comparison, candidate: Model, request: ProofRequest) -> Comparison:
    """Add a warning for each default of the plugin that rounds.

    Comparisons run with activations in f32. The plugin rounds them to 8 bits before products with compressed weights,
    and computes products of activations that the model rounds in integers, unless its properties are set otherwise.

    Args:
        proven: The comparison, without rounding of activations.
        candidate: The candidate model.
        request: The settings of the comparison.

    Returns:
        The comparison with warnings, or with the reason why rounding was not compared; unchanged without rounding.

    Raises:
        UnsupportedError: As `graphpass.runtime.open_session` and `DecodeSession.prefill`.
        UsageError: As `graphpass.runtime.open_session` and `DecodeSession.prefill`.
    """
    if candidate.dialect != "openvino":
        return proven
    for default in _defaults(candidate, request.device):
        if default.name not in (request.properties or {}):
            proven = _with_default(proven, candidate, request, default)
    return proven


def _defaults(candidate: Model, device: str) -> Iterator[_Default]:
    from graphpass.dialects.openvino.model import OpenVINOModel
    from graphpass.runtime.backends.openvino_request import (
        INTEGER_PRODUCTS,
        ROUNDING,
        computes_in_integers,
        default_group_size,
    )

    assert isinstance(candidate, OpenVINOModel)
    if computes_in_integers(candidate, device):
        yield _Default(INTEGER_PRODUCTS, "NO", "YES", "computes products of rounded activations in integers")
    if is_compressed(candidate.graph) and (size := default_group_size(candidate, device)) is not None:
        yield _Default(ROUNDING, "0", size, "rounds activations to 8 bits before products with compressed weights")


def _with_default(proven: Comparison, candidate: Model, request: ProofRequest, default: _Default) -> Comparison:
    device, properties = request.device, dict(request.properties or {})
    sessions = [
        request.opened(candidate, device=device, properties=properties | {default.name: value})
        for value in (default.exact, default.value)
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
        f"{device} {default.effect} ({default.name}={default.value} by default): logits of {_PROMPT} tokens move by "
        f"{largest:.3g}, and {int((chosen != again).sum())} of {len(chosen)} greedy choices change; the comparison ran "
        f"with {default.name}={default.exact}"
    )
    return replace(proven, warnings=(*proven.warnings, words))
