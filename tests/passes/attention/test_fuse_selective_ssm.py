"""The pass `fuse-selective-ssm`: the Loop computes the same, and paged attention stores its states in blocks."""

from __future__ import annotations

import functools

import numpy
import pytest
from support.models import exporters

import graphpass
from graphpass.runtime import open_session
from graphpass.targets import check_model
from graphpass.verify import compare


@functools.cache
def ran(family: str = "nemotron_h"):
    source = graphpass.load(exporters("transformers-onnx", family))
    return source, graphpass.PassManager(graphpass.parse("to-openvino,fuse-selective-ssm")).run(source)


def test_an_exported_hybrid_computes_the_same():
    source, result = ran()
    assert result.records[-1].result.statistics == {"layers fused": 1}
    assert compare(source, result.model, steps=4).passed


@pytest.mark.parametrize("length", [2, 9, 65])
def test_prompts_at_once_are_as_in_parts(length):
    """The export takes eight tokens at once."""
    source, result = ran()
    tokens = numpy.random.default_rng(length).integers(1, 250, length).tolist()
    found = open_session(result.model).prefill([tokens])[:, -1]
    reference = open_session(source)
    wanted = reference.prefill([tokens[:8]])[:, -1]
    for start in range(8, length, 8):
        wanted = reference.step([tokens[start : start + 8]])[:, -1]
    numpy.testing.assert_allclose(found, wanted, atol=2e-3)


def test_paged_attention_finds_the_states():
    source = graphpass.PassManager(graphpass.parse("drop-row-guards")).run(ran()[0]).model
    model = graphpass.PassManager(graphpass.get_target("paged").pipeline(source)).run(source).model
    report = check_model(model, "paged")
    assert report.holds
    assert report.confirmation.outcome == "confirmed"


def test_a_second_run_changes_nothing():
    _, result = ran()
    again = graphpass.PassManager(graphpass.parse("fuse-selective-ssm")).run(result.model)
    assert again.model.digest() == result.model.digest()


def test_other_rules_stay():
    source, result = ran("qwen3_5_text")
    (note,) = result.records[-1].result.notes
    assert "its rule is gated_delta" in note
    converted = graphpass.PassManager(graphpass.parse("to-openvino")).run(source).model
    assert result.model.digest() == converted.digest()
