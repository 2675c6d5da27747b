"""The pass `rechunk-linear-attention`: any number of tokens at once, and what it leaves."""

from __future__ import annotations

import functools

import numpy
import pytest
from support.models import exporters

import graphpass
from graphpass.analysis.equations.linear_attention import find_chunked_attention
from graphpass.analysis.equations.linear_equation import LinearAttention
from graphpass.ir.miss import Miss
from graphpass.runtime import open_session
from graphpass.verify import compare


@functools.cache
def ran(family: str = "nemotron_h", passes: str = "to-openvino,rechunk-linear-attention"):
    source = graphpass.load(exporters("transformers-onnx", family))
    return source, graphpass.PassManager(graphpass.parse(passes)).run(source)


def test_an_exported_hybrid_computes_the_same():
    source, result = ran()
    assert result.records[-1].result.statistics == {"layers rechunked": 1}
    assert result.records[-1].result.notes == ()
    assert compare(source, result.model, steps=4).passed


@pytest.mark.parametrize("length", [2, 8, 9, 63, 64, 65, 128, 200])
def test_prompts_at_once_are_as_in_parts(length):
    """The export takes eight tokens at once."""
    source, result = ran()
    tokens = numpy.random.default_rng(length).integers(1, 250, length).tolist()
    session, reference = open_session(result.model), open_session(source)
    found = session.prefill([tokens])[:, -1]
    wanted = reference.prefill([tokens[:8]])[:, -1]
    for start in range(8, length, 8):
        wanted = reference.step([tokens[start : start + 8]])[:, -1]
    numpy.testing.assert_allclose(found, wanted, atol=2e-3)
    following = [one.step([[7]]) for one in (session, reference)]
    numpy.testing.assert_allclose(*following, atol=2e-3)


def test_a_second_run_changes_nothing():
    _, result = ran()
    again = graphpass.PassManager(graphpass.parse("rechunk-linear-attention")).run(result.model)
    assert again.model.digest() == result.model.digest()
    assert again.records[-1].result.notes == ()


def test_other_rules_stay():
    source, result = ran("qwen3_5_text")
    assert result.records[-1].result.statistics == {}
    (note,) = result.records[-1].result.notes
    assert "its rule is gated_delta, which makes tokens of a chunk depend on one another" in note
    converted = graphpass.PassManager(graphpass.parse("to-openvino")).run(source).model
    assert result.model.digest() == converted.digest()


def test_sizes_of_chunks_are_known():
    source, result = ran()
    (before,), (after,) = (model.analysis(find_chunked_attention).values() for model in (source, result.model))
    assert isinstance(before, LinearAttention)
    assert isinstance(after, LinearAttention)
    assert (before.chunk, after.chunk) == (8, None)


def test_lost_states_between_chunks_are_found():
    """Fewer than 64 tokens do not show that."""
    _, result = ran()
    faulty = result.model.clone()
    (carried,) = [node for node in faulty.graph.nodes if node.name.endswith("/carried")]
    rewriter = faulty.rewriter()
    write = rewriter.under("fault")
    rewriter.redirect_uses(carried.outputs[0], write.op("Multiply", carried.outputs[0], write.number(0.0, "f32")))
    rewriter.finish()
    (found,) = faulty.analysis(find_chunked_attention).values()
    assert isinstance(found, Miss)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "gpu", "npu"])
@pytest.mark.parametrize("family", ["nemotron_h", "qwen3_5_text"])
def test_targets_support_long_prompts_of_hybrids(family, target):
    source = graphpass.load(exporters("transformers-onnx", family))
    passes = graphpass.get_target(target).pipeline(source)
    model = graphpass.PassManager(passes).run(source).model
    tokens = numpy.random.default_rng(0).integers(1, 250, 150).tolist()
    session, reference = open_session(model), open_session(source)
    found = session.prefill([tokens])[:, -1]
    for start in range(0, 150, 5):
        wanted = (reference.step if start else reference.prefill)([tokens[start : start + 5]])[:, -1]
    numpy.testing.assert_allclose(found, wanted, atol=2e-3)
