"""Packed caches of other tools are split into keys and values."""

from __future__ import annotations

import numpy
import onnx
import pytest
from support import layout_forms as forms
from support.decode import compiled, fused_attention
from support.graph_builder import random_step
from support.loaded import openvino_model
from support.pipelines import run_passes

import graphpass
from graphpass.analysis.caches.packed import is_packed
from graphpass.engine.passes import Skipped
from graphpass.ir.cache import Axes
from graphpass.ir.declaration import Declaration
from graphpass.passes.caches.unpack import Unpack


def test_the_cpu_plugin_fuses_unpacked_caches():
    back, _ = run_passes(openvino_model("llama"), "pack,unpack")
    assert fused_attention(compiled(back.ov_model)) == 2


@pytest.mark.parametrize(
    "form",
    [forms.packed_content, forms.packed_pair, lambda: forms.packed_pair(stacks=False)],
    ids=["side by side", "stacked whole", "stacked apart"],
)
def test_unpack_of_caches_packed_by_other_tools(form):
    """What each step computes of a cache, it computes of its parts."""
    model = form()
    unpacked, result = run_passes(model, "unpack")
    assert result.statistics == {"caches unpacked": 1, "caches made": 2}
    onnx.checker.check_model(unpacked.proto, full_check=True)
    caches = graphpass.analyze_caches(unpacked).of_kind("kv")
    assert [(cache.name, cache.role, cache.write) for cache in caches] == [
        ("past.key", "key", "present.key"),
        ("past.value", "value", "present.value"),
    ]
    before = random_step(model)
    feeds = {name[3:]: value for name, value in before.items() if name.startswith("in:")}
    feeds["past.key"], feeds["past.value"] = halves(feeds.pop("past"))
    after = random_step(unpacked, **feeds)
    numpy.testing.assert_allclose(after["logits"], before["logits"], rtol=1e-5, atol=1e-6)
    for name, half in zip(("present.key", "present.value"), halves(before["present"]), strict=True):
        numpy.testing.assert_allclose(after[name], half, rtol=1e-6)
    # Nothing copies a whole cache: no Split, Slice or Concat but those that append.
    assert sum(node.op_type in {"Split", "Slice"} for node in unpacked.proto.graph.node) == 0
    assert sum(node.op_type == "Concat" for node in unpacked.proto.graph.node) == 2


def halves(packed):
    return list(packed) if packed.shape[0] == 2 and packed.ndim == 5 else numpy.split(packed, 2, axis=3)


@pytest.mark.parametrize("form", [forms.latent, forms.absorbed, forms.shared])
def test_caches_without_a_pair_stay(form):
    result = run_passes(form(), Unpack())[1]
    assert isinstance(result, Skipped) or not result.changed


@pytest.mark.parametrize("form", [forms.all_layers, forms.all_caches])
def test_caches_of_all_layers_become_one_for_each_layer(form):
    model = form()
    stacked = graphpass.analyze_caches(model).of_kind("kv")
    model.declare([Declaration(cache.name, "kv", cache.role, cache.axes) for cache in stacked])
    unpacked, _ = run_passes(model, "unpack")
    onnx.checker.check_model(unpacked.proto, full_check=True)
    caches = graphpass.analyze_caches(unpacked).of_kind("kv")
    assert sorted(cache.role for cache in caches) == ["key"] * forms.LAYERS + ["value"] * forms.LAYERS
    assert unpacked.declarations == ()
    before = random_step(model)
    feeds = {name[3:]: value for name, value in before.items() if name.startswith("in:")}
    wholes = {name: feeds.pop(name) for name in list(feeds) if "past" in name}
    places = {}
    for cache in caches:
        name, *indices = cache.read.split(".")
        path = tuple(int({"key": 0, "value": 1}.get(index, index)) for index in indices)
        places[cache.write] = name, path
        feeds[cache.read] = wholes[name][path]
    after = random_step(unpacked, **feeds)
    numpy.testing.assert_allclose(after["logits"], before["logits"], rtol=1e-5, atol=1e-6)
    for written, (name, path) in places.items():
        numpy.testing.assert_array_equal(after[written], before[name.replace("past", "present")][path])
    assert is_packed(model, graphpass.analyze_caches(model))
    assert not is_packed(unpacked, graphpass.analyze_caches(unpacked))


def test_declarations_hold_for_unpacked_caches():
    model = forms.packed_pair()
    model.declare([Declaration("past", "kv", "unknown", Axes(batch=1, heads=2, sequence=3, head_dim=4))])
    unpacked, _ = run_passes(model, "unpack")
    axes = Axes(batch=0, heads=1, sequence=2, head_dim=3)
    assert unpacked.declarations == (
        Declaration("past.key", "kv", "key", axes),
        Declaration("past.value", "kv", "value", axes),
    )
