"""Prefill and decode models beside the model that they are split from."""

from __future__ import annotations

from support.loaded import onnx_model, run_once

from graphpass.engine.split import Split
from graphpass.verify.pair import compare_pair


def test_a_pair_is_compared_with_a_model_of_few_tokens_in_chunks():
    split = Split(24, 8, 40)
    prefill, decode = (
        run_once(onnx_model("llama"), f"make-static{{{sizes}}}").model
        for sizes in ("length=8,past=24", "length=1,past=40")
    )
    found = compare_pair(onnx_model("llama"), prefill, decode, split)
    assert found.passed
    assert max(len(row) for run in found.sequences for row in run.prompt_ids) == 24
