"""chunks-from-positions: chunks of positions, wherever the runtime puts them among its slots."""

from __future__ import annotations

import json

import pytest
from support.loaded import openvino_after
from support.models import exporters
from support.reference_tokens import greedy_tokens

from graphpass.analysis.caches.masks import find_masks
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import format_passes
from graphpass.errors import PreconditionError
from graphpass.io import load
from graphpass.jobs.pipelines import pipeline_for
from graphpass.passes.masks.chunks_from_positions import ChunksFromPositions
from graphpass.runtime import open_session
from graphpass.targets.cpu.target import CPU
from graphpass.targets.npu.target import NPU

#: Slots of NPUW: a prompt's, and those of the answer after them.
SIZES = {"NPUW_LLM_MAX_PROMPT_LEN": "64", "NPUW_LLM_MIN_RESPONSE_LEN": "64"}


@pytest.fixture(scope="module")
def source() -> OpenVINOModel:
    model = load(exporters("transformers-ov", "llama4_text"))
    assert isinstance(model, OpenVINOModel)
    return model


def test_npuw_attends_within_chunks(source):
    passes = pipeline_for(NPU(), source)
    assert "chunks-from-positions" in format_passes(passes)
    assert "chunks-from-positions" not in format_passes(pipeline_for(CPU(), source))
    result = PassManager(passes).run(source).model
    assert [(mask.chunk, mask.reads_positions) for mask in result.analysis(find_masks)] == [(8, True), (None, False)]
    expected = json.loads((exporters("transformers-ov", "llama4_text") / "reference.json").read_text())
    session = open_session(result, device="NPU", properties={"NPUW_DEVICES": "CPU", **SIZES})
    tokens = greedy_tokens(session, session.prefill([expected["prompt_ids"]]), len(expected["greedy_ids"]))
    assert tokens == expected["greedy_ids"]


def test_models_without_positions_are_refused(source):
    with pytest.raises(PreconditionError, match="no input position_ids"):
        openvino_after(source, ChunksFromPositions())
