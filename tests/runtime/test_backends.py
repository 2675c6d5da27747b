"""Every backend generates what PyTorch generated."""

from __future__ import annotations

import numpy as np
import pytest
from support.loaded import exported
from support.models import export, reference

from graphpass.io import load
from graphpass.runtime import DecodeSession, open_session

ONNX = [
    ("llama", "onnx"),
    ("gpt2", "onnx"),
    ("gemma3_text", "onnx"),
    ("deepseek_v3", "onnx"),
    ("llama", "onnx-nocache"),
    ("mamba", "onnx-raw"),
]
STATELESS = [
    ("llama", "ov-stateless"),
    ("gpt2", "ov-stateless"),
    ("qwen3", "ov-stateless"),
    ("lfm2", "ov-stateless"),
    ("mamba", "ov-stateless"),
    ("llama", "ov-nocache"),
]
STATEFUL = [
    ("llama", "ov-stateful"),
    ("qwen3", "ov-stateful"),
    ("lfm2", "ov-stateful"),
    ("mamba", "ov-stateful"),
    ("granitemoehybrid", "ov-stateful"),
    ("qwen3_next", "ov-stateful"),
]
#: How far an export's logits are from PyTorch's, as its exporter measured (mamba: the exporter's own scan).
TOLERANCE = {("mamba", "ov-stateless"): 3e-3, ("mamba", "ov-stateful"): 3e-3}


def greedy(session: DecodeSession, prompt: list[int], batch: int, count: int) -> list[list[int]]:
    chosen = [session.prefill([prompt] * batch)[:, -1].argmax(-1)]
    while len(chosen) < count:
        chosen.append(session.step(chosen[-1])[:, -1].argmax(-1))
    rows: list[list[int]] = np.array(chosen).T.tolist()
    return rows


@pytest.mark.parametrize(("name", "variant"), ONNX + STATELESS + STATEFUL)
def test_generates_the_reference_tokens(name: str, variant: str) -> None:
    wanted = reference(name)
    session = open_session(exported(f"{name}/{variant}"))
    ids, count = wanted["prompt_ids"], len(wanted["greedy_ids"])

    first = session.prefill(ids)
    assert first.shape == (1, len(ids), 320)
    np.testing.assert_allclose(
        first[0, -1, :8], wanted["logits_last_prompt_pos_first8"], atol=TOLERANCE.get((name, variant), 1e-5)
    )
    assert greedy(session, ids, 1, count) == [wanted["greedy_ids"]]
    assert (session.batch, session.length) == (1, len(ids) + count - 1)
    assert greedy(session, ids, 2, count) == [wanted["greedy_ids"]] * 2
    assert (session.batch, session.length) == (2, len(ids) + count - 1)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_openvino_runs_onnx_models_too(name: str) -> None:
    wanted = reference(name)
    session = open_session(load(export(name, "onnx")), backend="openvino")
    assert greedy(session, wanted["prompt_ids"], 1, 4) == [wanted["greedy_ids"][:4]]


@pytest.mark.parametrize(("name", "variant"), [("llama", "onnx"), ("gpt2", "ov-stateless"), ("qwen3", "ov-stateful")])
def test_padding_on_the_left_changes_nothing(name: str, variant: str) -> None:
    session = open_session(exported(f"{name}/{variant}"))
    alone = [session.prefill([3, 1, 4, 1, 5]), session.step([9])]
    ids = [[2, 7, 1, 8, 2, 8, 1], [0, 0, 3, 1, 4, 1, 5]]
    mask = [[1] * 7, [0, 0, 1, 1, 1, 1, 1]]
    together = [session.prefill(ids, mask), session.step([9, 9])]
    np.testing.assert_allclose(together[0][1, 2:], alone[0][0], atol=1e-4)
    np.testing.assert_allclose(together[1][1], alone[1][0], atol=1e-4)


@pytest.mark.parametrize(
    ("name", "variant"), [("llama", "onnx"), ("llama", "onnx-nocache"), ("llama", "ov-stateful"), ("mamba", "onnx-raw")]
)
def test_the_same_tokens_in_one_pass_or_in_several(name: str, variant: str) -> None:
    session = open_session(exported(f"{name}/{variant}"))
    tokens = [3, 1, 4, 1]
    whole = session.prefill(tokens)
    pieces = [session.prefill(tokens[:1]), session.step([tokens[1:]])]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), whole, atol=1e-4)


def test_prompts_shorter_than_a_convolution_window() -> None:
    """Against an export that takes one token at a time; OpenVINO's own prefill of mamba is inexact."""
    session = open_session(load(export("mamba", "ov-stateful")))
    expected = open_session(load(export("mamba", "onnx-raw"))).prefill([3, 1, 4, 1, 5, 9])
    pieces = [session.prefill([3]), session.step([[1, 4, 1, 5]]), session.step([9])]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), expected, atol=1e-4)


def test_positions_given_by_the_caller_are_used() -> None:
    session = open_session(load(export("llama", "onnx")))
    usual = session.forward([[3, 1, 4]])["logits"]
    session.reset()
    same = session.forward([[3, 1, 4]], position_ids=[[0, 1, 2]])["logits"]
    session.reset()
    spread = session.forward([[3, 1, 4]], position_ids=[[0, 5, 9]])["logits"]
    np.testing.assert_array_equal(same, usual)
    assert np.abs(spread - usual).max() > 1e-2


def test_an_inexact_session_is_close() -> None:
    model = load(export("llama", "ov-stateful"))
    exact, default = open_session(model), open_session(model, exact=False)
    np.testing.assert_allclose(default.prefill([1, 5, 9]), exact.prefill([1, 5, 9]), atol=0.2)
