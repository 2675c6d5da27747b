"""Define the target `paged`."""

from __future__ import annotations

from dataclasses import dataclass

from graphpass.targets.paged import rules, trial
from graphpass.targets.stateful import StatefulTarget


@dataclass(frozen=True)
class Paged(StatefulTarget):
    """Paged attention, openvino.genai's default backend.

    It keeps blocks of caches itself and computes attention without the model's mask: a lost part of a model (ALiBi, a
    window that it does not find) breaks the contract, so that no such model is written.

    Options:
        cache: ``beam`` alone; the scheduler of openvino.genai shares and frees blocks.
    """

    name = "paged"
    description = "openvino.genai's default backend: models that SDPAToPagedAttention transforms correctly"
    no_reorder = (
        "paged attention keeps the caches' slots itself, so they cannot be reordered from outside",
        "leave out cache=reorder; the scheduler of openvino.genai shares and frees blocks",
    )
    expands_latents = True
    predict = staticmethod(rules.predict)
    observe = staticmethod(trial.observe)
