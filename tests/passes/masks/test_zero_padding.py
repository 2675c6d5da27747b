"""`zero-padding`: a row padded on the left computes what it does alone."""

from __future__ import annotations

import numpy
from support.loaded import exported, run_once
from support.models import exporters

from graphpass.io import load
from graphpass.runtime import open_session
from graphpass.verify import compare


def test_padding_before_the_first_token_leaves_states() -> None:
    source = load(exporters("mobius", "qwen3_5_text"))
    result = run_once(source, "zero-padding")
    assert result.records[-1].result.statistics == {"operators masked": 2}
    assert not run_once(result.model, "zero-padding").records[-1].result.changed
    assert compare(source, result.model, steps=3).passed
    row = [7, 9, 11]
    padded = open_session(result.model), open_session(source)
    alone = open_session(source).prefill([row])[0, -1]
    found, misread = (session.prefill([[0, 0, *row]], [[0, 0, 1, 1, 1]])[0, -1] for session in padded)
    numpy.testing.assert_allclose(found, alone, atol=1e-4)
    assert not numpy.allclose(misread, alone, atol=1e-2)


def test_other_models_stay() -> None:
    assert not run_once(exported("llama/onnx"), "zero-padding").records[-1].result.changed
    assert not run_once(exported("qwen3_moe/onnx"), "zero-padding").records[-1].result.changed
