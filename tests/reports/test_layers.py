"""Paths of caches through a graph, and layers that have the same ones."""

from dataclasses import replace

import pytest

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.ir.cache import Axes
from graphpass.reports.layers import flow_of, group_layers
from graphpass.testing import Family, parse_model, tiny_model

ATTENTION = """%q = Parameter : f32[b, 2, n, 4]
%x = Parameter : f32[b, n, 8]
%heads = Reshape(%x, [0, 0, 2, 4])
%new = Transpose(%heads) {order=[0, 2, 1, 3]}
%k = Parameter : f32[b, 2, past, 4]
%v = Parameter : f32[b, 2, past, 4]
%keys = Concat(%k, %new) {axis=2}
%values = Concat(%v, %new) {axis=2}
%turned = Transpose(%keys) {order=[0, 1, 3, 2]}
%scores = MatMul(%q, %turned)
%weights = Softmax(%scores) {axis=3}
%y = MatMul(%weights, %values)
Result(%y) {name=logits}
Result(%keys) {name=k_out}
Result(%values) {name=v_out}"""


@pytest.mark.parametrize(
    ("name", "update", "reading"),
    [("k", ["k", "keys", "k_out"], ["turned", "scores", "weights"]), ("v", ["v", "values", "v_out"], ["y"])],
)
def test_paths_of_a_cache_part_after_its_update(name, update, reading):
    model = parse_model(ATTENTION)
    inventory = analyze_caches(model)
    flow = flow_of(model, inventory, inventory.cache(name))
    assert [stop.name for stop in flow.update] == update
    assert [stop.name for stop in flow.reading] == reading


def test_layers_of_one_kind_are_one_group():
    model = tiny_model(Family(convolution=True), layers=4)
    groups = group_layers(model, analyze_caches(model))
    assert sorted(group.layers for group in groups) == [(0, 2), (1, 3)]
    assert sorted(cache.kind for group in groups for cache, _ in group.lanes) == ["kv", "kv", "linear"]
    assert sum(len(group.members) for group in groups) == 6


@pytest.mark.parametrize(
    "known",
    [
        {"element_type": "f16"},
        {"role": "unknown"},
        {"kind": "unknown"},
        {"shape": ("b", 2, "past", 3)},
        {"axes": Axes()},
    ],
)
def test_caches_that_differ_are_in_two_groups(known):
    model = tiny_model("llama", layers=2)
    inventory = analyze_caches(model)
    assert [group.layers for group in group_layers(model, inventory)] == [(0, 1)]
    caches = tuple(replace(cache, **known) if cache.layer == 1 else cache for cache in inventory.caches)
    assert [group.layers for group in group_layers(model, replace(inventory, caches=caches))] == [(0,), (1,)]
