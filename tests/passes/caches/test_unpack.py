"""Packed states are split, also those of other tools."""

from __future__ import annotations

import numpy
import onnx
import pytest
from support import layout_forms as forms
from support.graph_builder import BATCH, builder_with_hidden_states, random_step
from support.loaded import onnx_model
from support.pipelines import run_passes

import graphpass
from graphpass.engine.passes import Skipped
from graphpass.engine.pipeline import format_passes
from graphpass.engine.registry import get_target
from graphpass.testing import assert_fused, assert_same
from graphpass.verify.session_forms import passes_for_sessions


def test_targets_support_packed_models():
    """The pipelines of targets know states by themselves."""
    packed, _ = run_passes(onnx_model("mamba", "onnx-raw"), "pack{only=linear}")
    assert "Unpack(" in str(get_target("cpu").pipeline(packed))
    assert "Unpack(" not in str(get_target("cpu").pipeline(onnx_model("mamba", "onnx-raw")))


def test_ort_fuses_packed_keys_and_values():
    packed, _ = run_passes(onnx_model("llama"), "pack{only=kv}")
    fused, _ = run_passes(packed, *get_target("ort").pipeline(packed))
    assert_fused(fused, GroupQueryAttention=2)
    assert_same(packed, fused)


def flat(cuts="Slice", reads="parts"):
    """Three states in one tensor, as another exporter might write it."""
    build = builder_with_hidden_states()
    past = build.input("past", ["B", 1, 20])
    bounds = [(0, 6), (6, 14), (14, 20)]
    if cuts == "Split":
        parts = build.op("Split", past, build.ints(6, 8, 6), outputs=3, axis=2)
    else:
        parts = [build.op("Slice", past, *(build.ints(one) for one in (*cut, 2))) for cut in bounds]
    states = [
        build.op("Reshape", part, build.ints(0, *sizes))
        for part, sizes in zip(parts, [(2, 3), (2, 2, 2), (3, 2)], strict=True)
    ]
    factor = build.op("ReduceMean", "hidden", build.ints(1, 2))
    updated = [
        build.op("Add", build.op("Mul", states[0], factor), build.weight(2, 3)),
        build.op("Add", build.op("Mul", states[1], build.weight(2, 2, 2)), build.weight(2, 1, 2)),
        build.op("Add", build.op("Mul", states[2], factor), build.weight(3, 2)),
    ]
    new = [build.op("Reshape", state, build.ints(0, 1, -1)) for state in updated]
    build.present(build.op("Concat", *new, axis=2), "present", ["B", 1, 20])
    build.output(build.op("Tanh", updated[1]), "logits", ["B", 2, 2, 2])
    if reads == "whole":
        build.output(build.op("Neg", past), "other", ["B", 1, 20])
    return build.model()


@pytest.mark.parametrize("cuts", ["Slice", "Split"])
def test_unpack_of_flat_states_by_other_tools(cuts):
    model = flat(cuts)
    unpacked, result = run_passes(model, "unpack{only=linear}")
    assert result.statistics == {"caches unpacked": 1, "caches made": 3}
    onnx.checker.check_model(unpacked.proto, full_check=True)
    assert sorted(
        (cache.read, cache.write, cache.shape) for cache in graphpass.analyze_caches(unpacked).of_kind("linear")
    ) == [
        ("past.0", "present.0", ("B", 2, 3)),
        ("past.1", "present.1", ("B", 2, 2, 2)),
        ("past.2", "present.2", ("B", 3, 2)),
    ]
    before = random_step(model)
    feeds = {name[3:]: value for name, value in before.items() if name.startswith("in:")}
    whole = feeds.pop("past")
    for place, (start, stop, sizes) in enumerate([(0, 6, (2, 3)), (6, 14, (2, 2, 2)), (14, 20, (3, 2))]):
        feeds[f"past.{place}"] = whole[:, :, start:stop].reshape(BATCH, *sizes)
    after = random_step(unpacked, **feeds)
    numpy.testing.assert_allclose(after["logits"], before["logits"], rtol=1e-6)
    flattened = [after[f"present.{place}"].reshape(BATCH, 1, -1) for place in range(3)]
    numpy.testing.assert_allclose(numpy.concatenate(flattened, 2), before["present"], rtol=1e-6)
    kept = {node.op_type for node in unpacked.proto.graph.node}
    assert not kept & {"Reshape", "Slice", "Split", "Concat"}


def test_a_state_read_as_a_whole_stays():
    assert isinstance(run_passes(flat(reads="whole"), "unpack{only=linear}")[1], Skipped)


def test_caches_of_merged_heads_are_split():
    model = forms.split_heads()
    assert format_passes(passes_for_sessions(model)).endswith("unpack{only=heads}")
    split, result = run_passes(model, "unpack{only=heads}")
    assert result.statistics == {"caches split into heads": 2}
    onnx.checker.check_model(split.proto, full_check=True)
    caches = graphpass.analyze_caches(split).of_kind("kv")
    assert {(cache.read, cache.write, cache.axes.heads) for cache in caches} == {
        ("past_key", "present_key", 2),
        ("past_value", "present_value", 2),
    }
    before = random_step(model)
    feeds = {name[3:]: value for name, value in before.items() if name.startswith("in:")}
    apart = (*feeds["past_key"].shape[:2], forms.HEADS, forms.SIZE)
    feeds |= {name: feeds[name].reshape(apart) for name in ("past_key", "past_value")}
    after = random_step(split, **feeds)
    for name in ("logits", "present_key", "present_value"):
        numpy.testing.assert_allclose(after[name].reshape(before[name].shape), before[name], rtol=1e-5, atol=1e-6)
    assert "unpack" not in format_passes(passes_for_sessions(split))


def test_merged_heads_that_are_also_read_whole_stay():
    result = run_passes(forms.split_heads(reads_whole=True), "unpack{only=heads}")[1]
    assert result.statistics == {"caches split into heads": 1}
    assert isinstance(run_passes(forms.merged_heads(), "unpack{only=heads}")[1], Skipped)
