"""The target `paged`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.targets.paged import rules, trial
from graphpass.targets.stateful import StatefulTarget


@dataclass(frozen=True)
class Paged(StatefulTarget):
    """Paged attention, openvino.genai's default backend.

    The backend stores caches in blocks and computes attention without the model's mask. A part of the mask that it does
    not find, such as ALiBi or a window, would be lost; this breaks the contract, and no model is written.

    Options:
        cache: Always ``beam``; the scheduler of openvino.genai shares and frees blocks.
    """

    name = "paged"
    description = "openvino.genai's default backend: models that SDPAToPagedAttention transforms correctly"
    no_reorder = (
        "paged attention manages the slots of caches itself, so callers cannot reorder them",
        "omit cache=reorder; the scheduler of openvino.genai shares and frees blocks",
    )
    expands_latents = True
    feeds_mask = False
    pages_states = True
    reads_all_logits = True
    generates = True
    predict = staticmethod(rules.predict)
    observe = staticmethod(trial.observe)
