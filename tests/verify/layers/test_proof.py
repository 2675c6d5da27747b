"""Comparisons layer by layer: the same verdicts as of whole models, and reports on what ran."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.commands import in_process
from support.loaded import converted, exported
from support.models import fixtures
from verify.layers.faults_of_layers import RAN, TINY, edited, layer_of, scale, scale_feed_forward

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import beam_gather
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify import compare_within

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.ir.model import Model
    from graphpass.ir.rewriter import Rewriter

#: Forms of caches, weights and experts: a layer of each kind.
SAMPLE = [
    ("bloom/onnx", "cpu"),
    ("deepseek_v3/onnx", "ort"),
    ("gemma3_text/onnx", "ort"),
    ("gpt2/onnx", "gpu"),
    ("gpt_oss/onnx", "ort"),
    ("granitemoehybrid/ov-stateless", "gpu"),
    ("lfm2/onnx-genai", "cpu"),
    ("lfm2/ov-stateful", "cpu"),
    ("llama/onnx-fp16", "ort"),
    ("llama/onnx-genai", "ort"),
    ("llama/ov-stateful-int8", "cpu"),
    ("mamba/ov-stateful", "cpu"),
    ("qwen3_moe/onnx", "cpu"),
    ("qwen3_moe/onnx", "ort"),
    ("qwen3_next/ov-stateful", "cpu"),
    ("zamba2/ov-stateful", "cpu"),
    ("llama/onnx", "npu"),
    ("llama/onnx", "paged"),
]


def exchange_one_weight(rewriter: Rewriter, model: Model) -> None:
    one, other = (next(node for node in layer_of(model, "MatMul", layer) if "up_proj" in node.name) for layer in (3, 9))
    sources = one.source(1), other.source(1)
    rewriter.redirect(one, 1, sources[1])
    rewriter.redirect(other, 1, sources[0])


def change_epsilon(rewriter: Rewriter, model: Model) -> None:
    """The norm of one layer adds 1e-5 more."""
    node = next(node for node in layer_of(model, "Add", 6) if "input_layernorm" in node.name)
    rewriter.redirect(node, 1, rewriter.op("Add", node.source(1), rewriter.constant(1e-5, "f32", "more"), name="eps"))


def scale_attention(rewriter: Rewriter, model: Model) -> None:
    scale("o_proj", rewriter, model)


def drop_beam_gather(rewriter: Rewriter, model: Model) -> None:
    cache = next(cache for cache in analyze_caches(model).caches if (cache.layer, cache.role) == (6, "value"))
    read = model.graph.reads[cache.read].outputs[0]
    gather = beam_gather(model.graph, read)
    assert gather is not None
    rewriter.redirect_uses(gather.outputs[0], rewriter.native(read))


def read_another_key(rewriter: Rewriter, model: Model) -> None:
    """Attention of one layer reads the next one's past keys, and writes its own."""
    reads = [
        model.graph.reads[cache.read].outputs[0]
        for cache in analyze_caches(model).caches
        if cache.role == "key" and cache.layer in (6, 7)
    ]
    own, other = (beam_gather(model.graph, read) for read in reads)
    assert own is not None
    assert other is not None
    rewriter.redirect_uses(own.outputs[0], rewriter.native(other.outputs[0]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [exchange_one_weight, change_epsilon, scale_attention, scale_feed_forward, drop_beam_gather, read_another_key],
    ids=lambda edit: edit.__name__,
)
def test_a_fault_of_one_layer_among_many_is_found(edit: Callable[[Rewriter, Model], None]) -> None:
    model = exported("llama_12l/onnx")
    found = compare_within(model, edited(converted(model).model, edit), TINY)
    assert found.divergence is not None, found.summary()
    assert found.divergence.reason.startswith(("layer ", "feed-forward "))


@pytest.mark.slow
@pytest.mark.parametrize(("place", "target"), SAMPLE)
def test_no_false_alarm_on_equal_models(place: str, target: str) -> None:
    model = exported(place)
    padding = graphpass.get_target(target).reads_padding
    found = compare_within(model, converted(model, target).model, TINY, steps=2, padding=padding)
    assert found.passed, found.summary()
    assert found.parts, found.skipped


@pytest.mark.slow
def test_layers_with_rounded_weights_are_paired_and_measured() -> None:
    model = exported("llama_12l/onnx")
    half = graphpass.PassManager(graphpass.parse("change-precision{to=f16}")).run(model).model
    found = compare_within(model, half, TINY, steps=1)
    assert found.passed, found.summary()
    assert [part.name for part in found.parts if part.like is None] == RAN
    assert all(0 < (part.difference or 0) < 0.05 for part in found.parts if part.like is None)
    assert {part.difference for part in found.parts if part.like is not None} == {None}
    assert f"largest differences: embedding {found.parts[0].difference:.2g}, layer 0 " in found.summary()
    swapped = half.clone()
    assert isinstance(swapped, OnnxModel)
    names = {
        layer: next(node.source(1).name for node in layer_of(half, "MatMul", layer) if "o_proj" in node.name)
        for layer in (5, 6)
    }
    one, other = (tensor for tensor in swapped.proto.graph.initializer if tensor.name in names.values())
    one.raw_data, other.raw_data = other.raw_data, one.raw_data
    swapped.mark_edited()
    wrong = compare_within(model, swapped, TINY, steps=0)
    assert wrong.divergence is not None
    assert "layer 5" in wrong.divergence.reason


@pytest.mark.slow
def test_the_command_reports_parts(capfd: pytest.CaptureFixture[str]) -> None:
    paths = [str(fixtures() / "llama" / variant) for variant in ("ov-stateless", "ov-stateful")]
    shown = in_process(capfd, "verify", *paths, "--steps", "1", "--budget", "1MB", "--format", "json")
    assert shown.code == 0, shown.err
    likes = {part["name"]: part["like"] for part in json.loads(shown.out)["parts"]}
    assert likes.pop("feed-forward 1") == "feed-forward 0"
    assert likes == dict.fromkeys([*RAN, "layer 1"])
