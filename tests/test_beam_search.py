"""Beam search on converted models finds what Hugging Face's finds with the checkpoint that they came from."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import numpy
import openvino
import openvino_genai
import pytest
from support.decode import EXACT
from support.models import export

#: Made by fixtures/make_beams.py.
FOUND = json.loads((Path(__file__).resolve().parents[1] / "fixtures" / "beams.json").read_text())

STOP = {
    "early": openvino_genai.StopCriteria.EARLY,
    "heuristic": openvino_genai.StopCriteria.HEURISTIC,
    "never": openvino_genai.StopCriteria.NEVER,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The ONNX export, converted as a user does it, with the tokenizers of optimum's export."""

    @functools.cache
    def build(variant: str) -> Path:
        from graphpass.cli.main import main

        made = tmp_path_factory.mktemp(variant)
        options = ["-o", str(made), "--target", "cpu", "--no-verify"]
        assert main(["--quiet", "convert", str(export("llama", variant)), *options]) == 0
        for file in export("llama", "ov-stateful").glob("openvino_*tokenizer*"):
            shutil.copy(file, made)
        return made

    return build


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["SDPA", "PA"])
@pytest.mark.parametrize("variant", ["onnx", "onnx-genai"])
def test_beams_equal_hugging_face(folder, variant, backend):
    pipeline = openvino_genai.LLMPipeline(folder(variant), "CPU", ATTENTION_BACKEND=backend, **EXACT)
    for search in FOUND["searches"]:
        config = openvino_genai.GenerationConfig(
            num_beams=FOUND["beams"],
            num_return_sequences=FOUND["beams"],
            max_new_tokens=FOUND["new_tokens"],
            eos_token_id=search["eos_token_id"],
            stop_token_ids={search["eos_token_id"]},
            stop_criteria=STOP[search["stop"]],
        )
        found = pipeline.generate(openvino.Tensor(numpy.array([search["prompt_ids"]])), config)
        assert [list(tokens) for tokens in found.tokens] == search["sequences"]
        numpy.testing.assert_allclose(found.scores, search["scores"], atol=1e-4)
