"""Comparisons layer by layer: the same verdicts as of whole models, and honest words on what ran."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.commands import in_process
from support.loaded import converted, exported
from support.models import fixtures

import graphpass
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.past import beam_gather
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.verify import compare_within
from graphpass.verify.layers import slices

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphpass.ir.graph import Node
    from graphpass.ir.model import Model
    from graphpass.ir.rewriter import Rewriter

#: Too little for any model.
TINY = "0.01MB"

#: The parts of a model of equal layers that run.
RAN = ["embedding", "layer 0", "feed-forward 0", "head"]

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


def layer_of(model: Model, kind: str, layer: int) -> list[Node]:
    """Return the operators of a layer that exporters name after it."""
    return [node for node in model.graph.of_op(kind) if f"layers.{layer}/" in node.name]


def edited(model: Model, edit: Callable[[Rewriter, Model], None]) -> Model:
    copy = model.clone()
    rewriter = copy.rewriter()
    edit(rewriter, copy)
    assert rewriter.finish()
    return copy


def exchange_weights(rewriter: Rewriter, model: Model) -> None:
    """Two layers read each other's weights, all of them."""
    for one, other in zip(layer_of(model, "MatMul", 5), layer_of(model, "MatMul", 6), strict=True):
        sources = one.source(1), other.source(1)
        rewriter.redirect(one, 1, sources[1])
        rewriter.redirect(other, 1, sources[0])


def exchange_one_weight(rewriter: Rewriter, model: Model) -> None:
    one, other = (next(node for node in layer_of(model, "MatMul", layer) if "up_proj" in node.name) for layer in (3, 9))
    sources = one.source(1), other.source(1)
    rewriter.redirect(one, 1, sources[1])
    rewriter.redirect(other, 1, sources[0])


def change_epsilon(rewriter: Rewriter, model: Model) -> None:
    """The norm of one layer adds 1e-5 more."""
    node = next(node for node in layer_of(model, "Add", 6) if "input_layernorm" in node.name)
    rewriter.redirect(node, 1, rewriter.op("Add", node.source(1), rewriter.constant(1e-5, "f32", "more"), name="eps"))


def scale(product: str, rewriter: Rewriter, model: Model) -> None:
    """One layer contributes 0.1 % more."""
    node = next(node for node in layer_of(model, "MatMul", 6) if product in node.name)
    more = rewriter.constant(1.001, "f32", "more")
    rewriter.redirect_uses(node.outputs[0], rewriter.op("Multiply", node.outputs[0], more, name="scaled"))


def scale_attention(rewriter: Rewriter, model: Model) -> None:
    scale("o_proj", rewriter, model)


def scale_feed_forward(rewriter: Rewriter, model: Model) -> None:
    scale("down_proj", rewriter, model)


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


def test_one_layer_of_each_structure_runs_in_place_of_a_large_model() -> None:
    model = exported("llama_12l/onnx")
    found = compare_within(model, converted(model).model, TINY, steps=1)
    assert found.passed, found.summary()
    # Layer 0 of the result computes half of head_dim for all layers.
    assert [part.name for part in found.parts if part.like is None] == [*RAN[:3], "layer 1", "head"]
    assert [part.like for part in found.parts[5:-1]] == ["layer 1", "feed-forward 0"] * 10
    assert "inferred from layer 1: layers 2-11, of equal structure" in found.summary()
    assert "inferred from feed-forward 0: feed-forwards 1-11, of equal structure" in found.summary()
    ends = [part.reference_end for part in found.parts[7:9]]
    assert ends == ["/model/layers.3/Add_output_0", "/model/layers.3/Add_1_output_0"]
    assert found.reach is not None
    assert (found.reach.masks, found.reach.angles) == (2, 2)


def test_one_layer_runs_if_all_share_a_table() -> None:
    """The result alone has the cosines and sines of its rotary embedding."""
    made = converted(exported("llama_12l/onnx"), "ort-genai{context=128}").model
    found = compare_within(exported("llama_12l/onnx"), made, TINY, padding="right")
    assert found.passed
    assert [part.name for part in found.parts if part.like is None] == RAN
    assert found.reach is not None
    assert not any(proof.sampled for proof in found.reach.proofs), "past lengths are those of the part's own caches"


def test_a_table_of_one_layer_alone_is_found() -> None:
    made = converted(exported("llama_12l/onnx"), "ort{context=128}").model.clone()
    rewriter = made.rewriter()
    late = list(made.graph.of_op("RotaryEmbedding"))[-1]
    port = next(port for port, value in enumerate(late.inputs) if value is not None and "cos_cache" in value.name)
    table = made.graph.constant(late.source(port)).copy()
    table[2:] *= 1.01
    rewriter.redirect(late, port, rewriter.under("mutant").constant(table, "cos_cache"))
    rewriter.finish()
    found = compare_within(exported("llama_12l/onnx"), made, TINY)
    assert not found.passed
    assert found.parts[-1].name == "layer 11"


def test_exchanged_weights_of_two_layers_are_found() -> None:
    model = exported("llama_12l/onnx")
    found = compare_within(model, edited(converted(model).model, exchange_weights), TINY, steps=0)
    assert found.divergence is not None
    assert "layer 5" in found.divergence.reason


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


def join_gates(rewriter: Rewriter, model: Model) -> None:
    """The gates of one layer come from a product with what they let through."""
    up, gate = (
        next(node for node in layer_of(model, "MatMul", 6) if name in node.name) for name in ("up_proj", "gate_proj")
    )
    weights = [model.graph.constant(node.source(1), 10**6) for node in (gate, up)]
    joined = rewriter.op("MatMul", gate.source(), rewriter.constant(np.concatenate(weights, 1), "", "w"), name="joined")
    for node, part in zip((gate, up), rewriter.split(joined, -1, [weights[0].shape[1]] * 2, "parts"), strict=True):
        rewriter.replace(node.outputs[0], part)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut what is larger than a fixture's weights."""
    monkeypatch.setattr(slices, "_MOST", 4_000)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize(
    ("place", "target"),
    [
        ("bloom/onnx", "cpu"),  # biases
        ("llama/onnx-fp16", "ort"),
        pytest.param("qwen3/ov-stateful", "gpu", marks=pytest.mark.slow),
    ],
)
def test_large_feed_forwards_run_channel_by_channel(place: str, target: str) -> None:
    model = exported(place)
    found = compare_within(model, converted(model, target).model, TINY, steps=0)
    assert found.passed, found.summary()
    assert sum(", channels 0 to " in run.description for run in found.sequences) >= 3


@pytest.mark.usefixtures("small_slices")
def test_feed_forwards_before_a_norm_run_whole() -> None:
    """It would hide by how much one slice is larger than another."""
    model = exported("gemma2/onnx")
    found = compare_within(model, converted(model, "ort").model, TINY, steps=0)
    assert found.passed, found.summary()
    assert not any("channels" in run.description for run in found.sequences)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize(("edit", "passes"), [(join_gates, True), (scale_feed_forward, False)])
def test_channels_of_one_layer(edit: Callable[[Rewriter, Model], None], passes: bool) -> None:
    model = exported("llama_12l/onnx")
    found = compare_within(model, edited(model, edit), TINY, steps=0)
    assert found.passed is passes, found.summary()
    assert any(run.description.startswith("feed-forward 6, channels 0 to ") for run in found.sequences)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "target"), SAMPLE)
def test_no_false_alarm_on_equal_models(place: str, target: str) -> None:
    model = exported(place)
    padding = graphpass.get_target(target).reads_padding
    found = compare_within(model, converted(model, target).model, TINY, steps=2, padding=padding)
    assert found.passed, found.summary()
    assert found.parts, found.skipped


@pytest.mark.slow
def test_all_layers_run_on_request() -> None:
    model = exported("llama_12l/onnx")
    found = compare_within(model, converted(model, "ort").model, all_layers=True, steps=0)
    assert found.passed
    assert len(found.parts) == 26
    assert {part.like for part in found.parts} == {None}


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
def test_a_model_of_one_token_at_a_time_runs_whole() -> None:
    model = exported("mamba/onnx-raw")
    found = compare_within(model, model, TINY, steps=0)
    assert found.parts == ()
    assert any("the number of new tokens is fixed" in text for text in found.skipped)


@pytest.mark.slow
def test_models_without_weights_in_common_run_whole() -> None:
    found = compare_within(exported("llama/onnx"), exported("mistral_sw8/onnx"), TINY, steps=0)
    assert not found.passed
    assert found.parts == ()
    assert "layer by layer: no values between layers have the same weights upstream in both models" in found.skipped


@pytest.mark.slow
def test_the_command_reports_parts(capfd: pytest.CaptureFixture[str]) -> None:
    paths = [str(fixtures() / "llama" / variant) for variant in ("ov-stateless", "ov-stateful")]
    shown = in_process(capfd, "verify", *paths, "--steps", "1", "--budget", "1MB", "--format", "json")
    assert shown.code == 0, shown.err
    likes = {part["name"]: part["like"] for part in json.loads(shown.out)["parts"]}
    assert likes.pop("feed-forward 1") == "feed-forward 0"
    assert likes == dict.fromkeys([*RAN, "layer 1"])
