"""Generation by sessions and by compiled models, against the tokens that PyTorch chose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy
import openvino

from graphpass.runtime import open_session
from support.decode import greedy
from support.models import reference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphpass.ir.model import Model


class DecodesGreedily(Protocol):
    """A session that takes one step after another."""

    def step(self, ids: list[int]) -> NDArray[Any]:
        """The logits of the next tokens, [1, 1, vocabulary]."""


def generates_reference_tokens(model: Model, name: str, *, one_by_one: bool = False) -> bool:
    """Return whether ``model`` continues the prompt of export ``name`` as PyTorch did; see `generates`."""
    return generates(model, reference(name), one_by_one=one_by_one)


def generates(model: Model, expected: Mapping[str, list[int]], *, one_by_one: bool = False) -> bool:
    """Return whether ``model`` continues a prompt as PyTorch did.

    Args:
        model: What to run.
        expected: PyTorch's ``prompt_ids`` and ``greedy_ids``.
        one_by_one: Feed the prompt one token a step, too: OpenVINO's own prefill of mamba is inexact.
    """
    prompt = expected["prompt_ids"]
    session = open_session(model)
    logits = session.prefill(prompt[:1] if one_by_one else prompt)
    for token in prompt[1:] if one_by_one else []:
        logits = session.step([token])
    return greedy_tokens(session, logits, len(expected["greedy_ids"])) == list(expected["greedy_ids"])


def greedy_tokens(session: DecodesGreedily, logits: NDArray[Any], count: int) -> list[int]:
    """``count`` tokens, each the likeliest, from those of the prompt's ``logits`` on."""
    chosen = [int(logits[0, -1].argmax())]
    while len(chosen) < count:
        chosen.append(int(session.step([chosen[-1]])[0, -1].argmax()))
    return chosen


class GeneratesAsPyTorch:
    """Tests of each ``model`` and ``variant`` of a parametrized subclass."""

    #: Compiles one of them, a static method.
    compile: Callable[[str, str], openvino.CompiledModel]

    def started(self, model: str, variant: str) -> tuple[dict[str, Any], openvino.InferRequest]:
        return reference(model), type(self).compile(model, variant).create_infer_request()

    def test_generates_the_reference_tokens(self, model: str, variant: str) -> None:
        expected, request = self.started(model, variant)
        assert greedy(request, [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]

    def test_generates_the_same_in_a_batch(self, model: str, variant: str) -> None:
        expected, request = self.started(model, variant)
        assert greedy(request, [expected["prompt_ids"]] * 2, 12) == [expected["greedy_ids"]] * 2

    def test_generates_the_same_after_left_padding(self, model: str, variant: str) -> None:
        expected, request = self.started(model, variant)
        prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
        assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]

    def test_first_logits_equal_pytorch(self, model: str, variant: str) -> None:
        expected, request = self.started(model, variant)
        greedy(request, [expected["prompt_ids"]], 1)
        logits = request.get_tensor("logits").data[0, -1, :8]
        numpy.testing.assert_allclose(logits, expected["logits_last_prompt_pos_first8"], atol=1e-4)
