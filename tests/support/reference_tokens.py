"""Tests that compiled models generate what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import openvino

from support.decode import greedy
from support.models import reference


class GeneratesAsPyTorch:
    """Tests of each ``model`` and ``variant`` of a parametrized subclass."""

    #: Compiles one of them, a static method.
    compile: Callable[[str, str], openvino.CompiledModel]

    def started(self, model: str, variant: str) -> tuple[dict[str, Any], openvino.InferRequest]:
        return reference(model), type(self).compile(model, variant).create_infer_request()

    def test_generates_what_pytorch_generates(self, model: str, variant: str) -> None:
        expected, request = self.started(model, variant)
        assert greedy(request, [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]

    def test_generates_the_same_in_a_batch(self, model: str, variant: str) -> None:
        expected, request = self.started(model, variant)
        assert greedy(request, [expected["prompt_ids"]] * 2, 12) == [expected["greedy_ids"]] * 2

    def test_generates_the_same_behind_left_padding(self, model: str, variant: str) -> None:
        expected, request = self.started(model, variant)
        prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
        assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]

    def test_first_logits_equal_pytorch(self, model: str, variant: str) -> None:
        expected, request = self.started(model, variant)
        greedy(request, [expected["prompt_ids"]], 1)
        logits = request.get_tensor("logits").data[0, -1, :8]
        numpy.testing.assert_allclose(logits, expected["logits_last_prompt_pos_first8"], atol=1e-4)
