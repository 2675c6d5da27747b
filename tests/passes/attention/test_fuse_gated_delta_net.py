"""The pass `fuse-gated-delta-net`: loops of any rule, exported hybrids, and what it leaves."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from support import linear_attention
from support.decode import compiled, executed
from support.linear_attention import CHUNKS, FORMS, HEAD_COUNTS, build, feeds
from support.models import export, exporters, hybrids

import graphpass
from graphpass import analyze_caches
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.verify import compare

_LOOP = "lower-operators,to-openvino"


def ran(model: graphpass.Model, passes: str) -> tuple[OpenVINOModel, Any]:
    result = graphpass.PassManager(graphpass.parse(passes)).run(model)
    assert isinstance(result.model, OpenVINOModel)
    return result.model, result.records[-1].result


def layers(model: OpenVINOModel) -> tuple[int, int]:
    """How many gated delta nets, and other loops, OpenVINO's CPU plugin runs."""
    kinds = executed(compiled(model.ov_model))
    return kinds["GatedDeltaNet"], kinds["TensorIterator"]


def compute_the_same(reference: OnnxModel, candidate: OpenVINOModel, lengths: list[int]) -> None:
    expected, request = linear_attention.session(reference), compiled(candidate.ov_model).create_infer_request()
    random, state = numpy.random.default_rng(1), None
    for length in lengths:
        fed = feeds(reference, length, random)
        if "past" in fed and state is not None:
            fed["past"] = state
        wanted = expected.run(None, fed)
        found = request.infer(fed)
        state = wanted[1]
        for name, want in zip(("attended", "present"), wanted, strict=True):
            numpy.testing.assert_allclose(found[name], want, atol=1e-4)


@settings(deadline=None, max_examples=20)
@given(form=FORMS, heads=HEAD_COUNTS, lengths=CHUNKS)
def test_each_delta_rule_with_a_decay_a_head_is_fused(form, heads, lengths):
    source = build(form.pop("rule"), *heads, **form)
    rule = source.proto.graph.node[0].attribute
    corrects = any(one.name == "update_rule" and b"delta" in one.s for one in rule)
    model, result = ran(source, f"{_LOOP},fuse-gated-delta-net")
    rows = form["rows"] and "decay" in {port.name for port in source.inputs}
    is_fused = corrects and heads[0] <= heads[1] and not rows
    assert layers(model) == ((1, 0) if is_fused else (0, 1))
    assert bool(result.notes) is not is_fused
    compute_the_same(source, model, lengths)
    again, second = ran(model, "fuse-gated-delta-net")
    assert again.digest() == model.digest()
    assert second.statistics == {}


@pytest.mark.parametrize("key_dim", [8, 12, 24])
def test_queries_are_scaled_once(monkeypatch, key_dim):
    monkeypatch.setattr(linear_attention, "KEY_DIM", key_dim)
    before, _ = ran(build(), _LOOP)
    model, _ = ran(build(), f"{_LOOP},fuse-gated-delta-net")
    outside = [[node.op for node in one.graph.nodes].count("Multiply") for one in (before, model)]
    assert outside == [1, 0]
    compute_the_same(build(), model, [3, 1])


def test_heads_of_128_compute_the_same(monkeypatch):
    monkeypatch.setattr(linear_attention, "KEY_DIM", 128)
    monkeypatch.setattr(linear_attention, "VALUE_DIM", 128)
    model, _ = ran(build("gated_delta", 16, 16), f"{_LOOP},fuse-gated-delta-net")
    assert layers(model) == (1, 0)
    compute_the_same(build("gated_delta", 16, 16), model, [70, 1])


def test_loops_fused_by_openvino_stay():
    source = graphpass.load(export("qwen3_next", "ov-stateless"))
    model, result = ran(source, "fuse-gated-delta-net")
    assert (result.statistics, result.notes) == ({}, ())
    assert model.digest() == source.digest()
    assert layers(model) == (3, 0)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        (lambda: hybrids() / "qwen3_next_dense" / "onnx-raw", 3),
        (lambda: exporters("mobius", "qwen3_5_text"), 1),
        (lambda: exporters("transformers-onnx", "qwen3_5_text"), 1),
    ],
    ids=["torchscript", "mobius", "chunks"],
)
def test_layers_of_exported_hybrids_are_fused(source, count):
    reference = graphpass.load(source())
    model, result = ran(reference, f"{_LOOP},fuse-gated-delta-net")
    assert result.statistics == {"layers fused": count}
    assert layers(model) == (count, 0)
    kinds = [[(cache.kind, cache.axes) for cache in analyze_caches(one).caches] for one in (reference, model)]
    assert kinds[0] == kinds[1]
    assert compare(reference, model, steps=4).passed


@pytest.mark.parametrize(
    ("exporter", "first"), [("transformers-onnx", "to-openvino"), ("transformers-ov", "canonicalize-shapes")]
)
def test_chunks_with_decays_per_row_become_a_loop(exporter, first):
    """OpenVINO has no operator for it; the exports take 64 tokens at once, and pad by Pad or by a Concat with zeros."""
    source = graphpass.load(exporters(exporter, "kimi_linear"))
    model, result = ran(source, f"{first},fuse-gated-delta-net")
    assert result.statistics == {"layers fused": 1}
    assert layers(model) == (0, 1)
    assert compare(source, model, steps=4).passed
    again, second = ran(model, "fuse-gated-delta-net")
    assert again.digest() == model.digest()
    assert second.statistics == {}
    tokens = numpy.random.default_rng(0).integers(1, 250, 100).tolist()
    session, reference = (graphpass.runtime.open_session(one) for one in (model, source))
    whole = session.prefill([tokens])[:, -1]
    for start in range(0, 100, 50):
        wanted = (reference.step if start else reference.prefill)([tokens[start : start + 50]])[:, -1]
    numpy.testing.assert_allclose(whole, wanted, atol=1e-3)
