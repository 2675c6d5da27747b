"""What `graphpass.runtime` generates, against PyTorch's tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from graphpass.runtime import open_session
from support.models import reference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model

__all__ = ["generates", "greedy"]


class DecodesGreedily(Protocol):
    """A session that takes one step after another."""

    def step(self, ids: list[int]) -> NDArray[Any]:
        """The logits of the next tokens, [1, 1, vocabulary]."""


def generates(model: Model, name: str, *, one_by_one: bool = False) -> bool:
    """Return whether ``model`` continues the prompt of export ``name`` as PyTorch did.

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
    return greedy(session, logits, len(wanted["greedy_ids"])) == list(wanted["greedy_ids"])


def greedy(session: DecodesGreedily, logits: NDArray[Any], count: int) -> list[int]:
    """``count`` tokens, each the likeliest, from those of the prompt's ``logits`` on."""
    chosen = [int(logits[0, -1].argmax())]
    while len(chosen) < count:
        chosen.append(int(session.step([chosen[-1]])[0, -1].argmax()))
    return chosen
