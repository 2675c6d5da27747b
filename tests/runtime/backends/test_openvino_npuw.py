"""Sessions on NPUs, by NPUW on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from edits.machine import run_edits
from edits.subjects import NPUW, on_device
from onnxruntime.quantization import QuantType
from support.loaded import openvino_after, openvino_model
from support.static_scales import in_static_int8

import graphpass
from graphpass.errors import GraphpassError, UnsupportedError
from graphpass.runtime import DecodeSession, open_session
from graphpass.runtime.speculative import PromptLookup, speculate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: NPUW keeps caches in f16.
TOLERANCE = 2e-2
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def llama(**properties: str) -> DecodeSession:
    model = openvino_model("llama")
    made_for_npu = openvino_after(model, *graphpass.get_target("npu").pipeline(model))
    return open_session(made_for_npu, device="NPU", properties=NPUW | properties)


def expected(tokens: list[int]) -> np.ndarray:
    return open_session(openvino_model("llama")).prefill(tokens)[0, -1]


def test_positions_fed_again() -> None:
    """A prompt, steps, and back into either, the steps after that among them."""
    session = llama()
    session.prefill(PROMPT)
    session.rewind(5)
    tokens = PROMPT[:5]
    for fed, kept in (([7, 8, 9], 6), ([4, 2, 2, 1], 10), ([9], 1), ([5, 5, 5], 4)):
        tokens += fed
        np.testing.assert_allclose(session.step([fed])[0, -1], expected(tokens), atol=TOLERANCE)
        session.rewind(kept)
        tokens = tokens[:kept]


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("lfm2", "ov-stateful"),
        *(
            pytest.param(*form, marks=pytest.mark.slow)
            for form in (("llama", "ov-stateful"), ("gemma3_text", "ov-stateful"), ("gpt2", "onnx"))
        ),
    ],
)
def test_random_edits_equal_recomputation(name: str, variant: str) -> None:
    run_edits(on_device(name, variant, "NPU"), 12)


@pytest.mark.slow
@pytest.mark.parametrize("at_once", ["1", "4"])
def test_drafts_are_checked(at_once: str) -> None:
    session = llama(NPUW_LLM_MAX_GENERATION_TOKEN_LEN=at_once)
    found = speculate(session, PROMPT, PromptLookup(length=3), count=24)
    assert found == speculate(open_session(openvino_model("llama")), PROMPT, PromptLookup(length=3), count=24)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("act", "id", "words"),
    [
        (lambda session: session.prefill([[3], [4]]), "GP242", "a fixed batch of 1"),
        (lambda session: session.select([0, 0]), "GP246", "a fixed batch of 1"),
        (lambda session: session.step([[5, 6]], parents=[-1, -1]), "GP371", "tree"),
        (lambda session: session.prefill([[3, 4]], [[0, 1]]), "GP376", "padding"),
        (lambda session: session.forward([[3]], position_ids=[[2]]), "GP376", "from 8 on"),
        (lambda session: session.prefill([3] * 128), "GP267", "of 127 positions"),
    ],
)
def test_unsupported_calls_of_npuw_are_refused(act: Callable[[DecodeSession], object], id: str, words: str) -> None:  # noqa: A002
    session = llama()
    session.prefill(PROMPT)
    with pytest.raises(GraphpassError, match=words) as caught:
        act(session)
    assert caught.value.id == id


def test_steps_after_a_moved_slot_are_refused() -> None:
    session = llama()
    session.prefill(PROMPT)
    session.reorder([2], [3])
    with pytest.raises(UnsupportedError, match="reordered") as caught:
        session.step([7])
    assert caught.value.id == "GP370"
    session.rewind(3)
    np.testing.assert_allclose(session.step([7])[0, -1], expected([*PROMPT[:3], 7]), atol=TOLERANCE)


def test_a_missing_npu_is_reported() -> None:
    with pytest.raises(UnsupportedError, match="no NPU here") as caught:
        open_session(openvino_model("llama"), device="NPU")
    assert caught.value.id == "GP321"
    assert caught.value.hint is not None
    assert "NPUW_DEVICES=CPU" in caught.value.hint


def test_products_of_rounded_activations_are_computed_in_f32(tmp_path: Path) -> None:
    """NPUW compiles its parts for the CPU plugin, whose integers differ by 1.7e-2 of the largest logit."""
    model = graphpass.load(in_static_int8(tmp_path, ("rotary", "lm_head"), QuantType.QInt8))
    made = openvino_after(model, *graphpass.get_target("npu").pipeline(model))
    prompt = np.random.default_rng(5).integers(3, 250, 30).tolist()
    logits = open_session(made).prefill(prompt)[0, -1]
    actual = open_session(made, device="NPU", properties=NPUW).prefill(prompt)[0, -1]
    np.testing.assert_allclose(actual, logits, atol=1e-3 * abs(logits).max())
