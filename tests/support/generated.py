"""What `graphpass.runtime` generates, against PyTorch's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphpass.runtime import open_session
from support.models import reference

if TYPE_CHECKING:
    from graphpass.model import Model

__all__ = ["generates"]


def generates(model: Model, name: str, *, one_by_one: bool = False) -> bool:
    """Whether ``model`` continues the prompt of export ``name`` as PyTorch did.

    Args:
        model: What to run.
        name: The export.
        one_by_one: Feed the prompt one token a step, too: OpenVINO's own prefill of mamba is inexact.
    """
    wanted = reference(name)
    prompt = wanted["prompt_ids"]
    session = open_session(model)
    logits = session.prefill(prompt[:1] if one_by_one else prompt)
    for token in prompt[1:] if one_by_one else []:
        logits = session.step([token])
    chosen = [int(logits[0, -1].argmax())]
    while len(chosen) < len(wanted["greedy_ids"]):
        chosen.append(int(session.step([chosen[-1]])[0, -1].argmax()))
    return bool(chosen == wanted["greedy_ids"])
