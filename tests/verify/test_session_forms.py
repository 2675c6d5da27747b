"""Operators without a kernel on the CPU are replaced in both models of a comparison, and the report states it."""

from support.models import export, exporters, reference
from support.reference_tokens import greedy_tokens
from support.slot_caches import CAPACITY, slot_decoder

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import format_passes
from graphpass.io import load
from graphpass.runtime import open_session
from graphpass.testing import tiny_model
from graphpass.verify.session_forms import in_session_form, notes_on_form, passes_for_sessions


def test_passes_follow_from_the_operators():
    assert format_passes(passes_for_sessions(load(exporters("builder-paged", "qwen3")))) == "unpage-caches"
    normed = load(exporters("builder-webgpu", "qwen3"))
    assert format_passes(passes_for_sessions(normed)) == "lower-operators{only=[group-query-attention]}"


def test_attention_over_heads_of_other_sizes_is_lowered():
    """ONNX Runtime cannot run the export itself: it rotates heads of 8."""
    model = load(export("llama_12l", "onnx-genai"))
    assert format_passes(passes_for_sessions(model)) == "lower-operators{only=[group-query-attention]}"
    expected, session = reference("llama_12l"), open_session(in_session_form(model))
    tokens = greedy_tokens(session, session.prefill(expected["prompt_ids"]), 4)
    assert tokens == expected["greedy_ids"][:4]


def test_a_model_for_the_cpu_is_returned():
    model = tiny_model("llama", layers=1)
    assert in_session_form(model) is model
    assert notes_on_form(model) == ()


def test_a_paged_reference_is_compared_in_its_other_form():
    reference = load(exporters("builder-paged", "qwen3"))
    candidate = PassManager(passes_for_sessions(reference)).run(reference).model
    comparison = graphpass.verify(reference, candidate, steps=2)
    assert comparison.passed
    assert "operators without a kernel on the CPU: the reference ran after unpage-caches" in comparison.skipped


def test_sizes_of_caches_that_only_the_graph_determines_are_declared():
    model = slot_decoder("openvino", is_open=True)
    assert {cache.capacity for cache in analyze_caches(model).caches} == {None}
    assert format_passes(passes_for_sessions(model)) == "canonicalize-shapes"
    assert {cache.capacity for cache in analyze_caches(in_session_form(model)).caches} == {CAPACITY}
    assert passes_for_sessions(slot_decoder("openvino")) == ()
