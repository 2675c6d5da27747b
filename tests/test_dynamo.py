"""The main job on decoders that PyTorch's own exporter writes; `fixtures/make_dynamo.py` made them."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from support.decode import compiled, fused_attention
from support.loaded import converted
from support.models import dynamo

import graphpass
from graphpass.analysis.attention.mask import plain_mask
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.analysis.caches.masks import find_masks
from graphpass.analysis.equations.grouped_query import GroupedQuery, find_grouped_queries
from graphpass.runtime import open_session
from graphpass.verify import compare
from graphpass.verify.structure.proof import compare_structures

#: A sliding window of 8 in all layers; in the first of two, in operators of opset 23; caches of latents.
MODELS = {"mistral": "onnx-18", "gemma3_text": "onnx-23", "deepseek_v3": "onnx-18"}

#: Window, and whether padding is hidden.
WINDOWED, PADDED = (8, True), (None, True)


def exported(name: str) -> graphpass.Model:
    return graphpass.load(dynamo(name) / MODELS[name])


def expected(name: str) -> dict:
    return json.loads((dynamo(name) / "reference.json").read_text())


def tokens(model: graphpass.Model, prompt: list[int], count: int) -> list[int]:
    session = open_session(model)
    found = [int(session.prefill(prompt)[0, -1].argmax())]
    while len(found) < count:
        found.append(int(session.step([found[-1:]])[0, -1].argmax()))
    return found


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("mistral", "cpu"),
        ("mistral", "gpu"),
        ("mistral", "npu"),
        ("mistral", "ort"),
        ("mistral", "ort-genai"),
        ("gemma3_text", "ort"),
        ("gemma3_text", "ort-genai"),
        ("gemma3_text", "cpu"),
        ("gemma3_text", "npu"),
        ("deepseek_v3", "ort"),
        ("deepseek_v3", "gpu"),
    ],
)
def test_generates_the_reference_tokens(name, target):
    wanted = expected(name)
    made = converted(exported(name), target + "{context=128}" * (target == "ort-genai")).model
    # NPUs have names of their own for caches.
    if target != "npu":
        assert tokens(made, wanted["prompt_ids"], 12) == wanted["greedy_ids"]
    comparison = compare(exported(name), made, padding="right" if target == "ort-genai" else "left")
    assert comparison.passed, comparison.summary()


@pytest.mark.parametrize("name", ["mistral", "gemma3_text"])
def test_fuses_attention_of_every_layer(name):
    assert fused_attention(compiled(converted(exported(name)).model.ov_model)) == 2
    operators = Counter(node.op for node in converted(exported(name), "ort{context=128}").model.graph.nodes)
    assert operators["GroupQueryAttention"] == 2
    assert not {"Softmax", "Attention"} & operators.keys()


def test_masks_gathering_padding_are_plain():
    """Transformers look ``attention_mask`` up by batch and position, which is a GatherND."""
    masks = [plain_mask(mask) for mask in exported("mistral").analysis(find_masks)]
    assert [(mask.window, mask.is_padded) for mask in masks] == [WINDOWED] * 2


def test_operators_of_opset_23_are_read():
    read = exported("gemma3_text").analysis(find_grouped_queries).values()
    masks = [one.mask for one in read if isinstance(one, GroupedQuery)]
    assert [(mask.window, mask.is_padded) for mask in masks] == [WINDOWED, PADDED]
    assert all(one.rotations is not None for one in read)


def test_operators_copying_their_cache_get_a_hint():
    model = exported("gemma3_text")
    found = graphpass.get_target("ort").predict(model, analyze_caches(model))
    reasons = {one.reason for one in found if one.subject == "attention"}
    cure = "which keeps its cache in place: run fuse-group-query-attention"
    assert reasons == {f"one operator, Attention, not GroupQueryAttention, {cure}"}


@pytest.mark.parametrize("name", ["mistral", "gemma3_text"])
def test_windows_count_positions(name):
    """Dropped tokens would use up a part of a window that counts places."""
    notes = [note for record in converted(exported(name)).records for note in getattr(record.result, "notes", ())]
    assert not [note for note in notes if "cannot count positions" in note]


class TestLatentCaches:
    """DeepSeek in transformers 5 keeps what keys and values are computed from."""

    @pytest.mark.parametrize("target", [None, "gpu"])
    def test_latent_caches_are_found(self, target):
        model = exported("deepseek_v3")
        caches = analyze_caches(model if target is None else converted(model, target).model).of_kind("kv")
        assert sorted(cache.shape[-1] for cache in caches) == [8, 8, 16, 16]
        assert {cache.axes.sequence for cache in caches} == {2}

    def test_keys_and_values_are_cached_if_attention_requires_it(self):
        model = exported("deepseek_v3")
        made = converted(model).model
        findings = graphpass.get_target("cpu").predict(made, analyze_caches(made))
        assert [one.verdict for one in findings if one.subject == "attention"] == ["fused"] * 2
        proof = compare_structures(model, made)
        assert proof is not None
        assert proof.unpadded == proof.operators


def test_wrong_opset_23_attention_is_left():
    """Causal attention of opset 23 counts positions from the first query, whatever is cached."""
    model = exported("gemma3_text")
    for node in model.proto.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Attention" and attribute.name == "is_causal":
                attribute.i = 1
    model.mark_edited()
    assert all("its causal mask ignores the past" in str(one) for one in model.analysis(find_grouped_queries).values())
