"""convert of drafts on hidden states: openvino.genai loads the folders and accepts the same draft tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino
import openvino_genai
import pytest
from support.commands import in_process
from support.decode import EXACT
from support.models import drafts

import graphpass
from graphpass.errors import UsageError
from graphpass.runtime import open_session

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = drafts("eagle3")
REFERENCE = json.loads((FOLDER / "reference.json").read_text())


def generated(target: Path, draft: Path) -> tuple[list[int], int]:
    """Tokens after the prompt, and the number of accepted draft tokens."""
    pipeline = openvino_genai.LLMPipeline(
        target, "CPU", draft_model=openvino_genai.draft_model(draft, "CPU", **EXACT), **EXACT
    )
    settings = openvino_genai.GenerationConfig(max_new_tokens=35, ignore_eos=True, num_assistant_tokens=3)
    ids = np.array([REFERENCE["prompt"]])
    result = pipeline.generate(
        openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids))), settings
    )
    return result.tokens[0], result.extended_perf_metrics.get_num_accepted_tokens()


@pytest.mark.parametrize("target", ["paged", pytest.param("cpu", marks=pytest.mark.slow)])
def test_openvino_genai_accepts_the_same_draft_tokens(capfd: Any, tmp_path: Path, target: str) -> None:
    accepted = generated(FOLDER / "target", FOLDER / "draft")
    assert accepted[0] == REFERENCE["tokens"]
    assert accepted[1] > 0
    for name in ("target", "draft"):
        done = in_process(capfd, "convert", FOLDER / name, "-o", tmp_path / name, "--target", target)
        assert done.code == 0, done.err
        assert "equal for every input" in done.out
    assert generated(tmp_path / "target", tmp_path / "draft") == accepted


def test_sessions_of_drafts_read_states_with_ids() -> None:
    session = open_session(graphpass.load(FOLDER / "draft"))
    assert session.state_size == 96
    rows = np.random.default_rng(1).standard_normal((1, 4, 97)).astype(np.float32)
    rows[:, :, -1] = [5, 9, 17, 3]
    logits = session.prefill(rows)
    assert logits.shape == (1, 4, 200)
    session.trim(2)
    np.testing.assert_allclose(session.step(rows[:, 2:3]), logits[:, 2:3], atol=1e-5)
    with pytest.raises(UsageError, match="expected embeddings") as error:
        session.step([3])
    assert error.value.id == "GP241"
    with pytest.raises(UsageError, match=r"hidden_states with the id must be \[batch, length, 97\]"):
        session.step(rows[:, :1, :96])
