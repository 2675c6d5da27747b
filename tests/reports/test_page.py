"""The HTML report: complete, self-contained, the same every time."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from reports.hostile_pages import HOSTILE, pictures_in
from support.loaded import exported
from support.models import export, fixtures
from support.quick_cases import model_files, quick_files

import graphpass
from graphpass.reports.layers import flow_of, group_layers
from graphpass.reports.page import render


def page(model, title="a model"):
    return render(model, graphpass.analyze_caches(model), title)


@pytest.mark.parametrize("file", quick_files(model_files()))
def test_pages_hold_everything_of_every_export(file):
    model = exported(file)
    inventory = graphpass.analyze_caches(model)
    made = page(model)
    assert made == page(graphpass.load(fixtures() / file))
    for cache in inventory.caches:
        assert cache.name in made
    shown = {int(number) for number in re.findall(r'data-cache="(\d+)"', made)}
    evidence = {int(number) for number in re.findall(r'<details id="cache-(\d+)"', made)}
    assert shown <= evidence == set(range(len(inventory.caches)))
    assert not re.search(r"(src|href)=|https?:|@import|url\(", made), "the page asks for something outside itself"


def test_equal_layers_are_shown_once():
    model = graphpass.load(export("llama_12l", "onnx"))
    (group,) = group_layers(model, graphpass.analyze_caches(model))
    assert group.layers == tuple(range(12))
    assert [cache.role for cache, _ in group.lanes] == ["key", "value"]
    assert len(group.members) == 24
    assert "Layers 0-11" in page(model)


def test_alternating_layers_fold_too():
    model = graphpass.load(export("lfm2", "ov-stateful"))
    assert [group.layers for group in group_layers(model, graphpass.analyze_caches(model))] == [(0, 2), (1, 3)]


@pytest.mark.parametrize(
    ("model", "variant", "cache", "update", "reading"),
    [
        (
            "llama",
            "ov-stateful",
            0,
            "ReadValue Gather Concat Assign",
            "Unsqueeze Broadcast Reshape ScaledDotProductAttention",
        ),
        ("gpt2", "onnx", 0, "Parameter Concat Result", "Transpose Multiply MatMul Add Softmax"),
        ("gpt2", "onnx", 1, "Parameter Concat Result", "MatMul"),
        ("llama", "onnx-genai", 0, "Parameter GroupQueryAttention Result", ""),
        ("lfm2", "ov-stateless", 0, "Parameter Concat Slice Broadcast Result", ""),
    ],
)
def test_the_flow_of_a_cache_is_shown(model, variant, cache, update, reading):
    loaded = graphpass.load(export(model, variant))
    inventory = graphpass.analyze_caches(loaded)
    flow = flow_of(loaded, inventory, inventory.caches[cache])
    assert " ".join(stop.op for stop in flow.update) == update
    assert " ".join(stop.op for stop in flow.reading) == reading


def test_names_are_escaped():
    model = graphpass.load(export("llama", "onnx")).clone()
    node = next(node for node in model.proto.graph.node if node.op_type == "Softmax")
    node.name = HOSTILE
    model.mark_edited()
    inventory = graphpass.analyze_caches(model)
    hostile = replace(inventory.caches[0], evidence=(HOSTILE,))
    made = render(model, replace(inventory, caches=(hostile, *inventory.caches[1:])), HOSTILE)
    assert "<script>alert" not in made
    assert "<img" not in made
    (picture,) = pictures_in(made)
    assert picture["titles"] == [HOSTILE]
    assert HOSTILE in [name for group in picture["groups"] for names in group["sides"][0]["names"] for name in names]
