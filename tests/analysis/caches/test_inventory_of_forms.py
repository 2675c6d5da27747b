"""Caches in forms that no exporter of the fixtures writes: told from the dataflow, and seen to be so in real steps."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino._offline_transformations import apply_make_stateful_transformation
from support import layout_forms as forms
from support.cache_graphs import Renaming, renamed, shuffled
from support.graph_builder import NEW, PAST, ROOM, random_step

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.cache import Axes

KV = Axes(batch=0, heads=1, sequence=2, head_dim=3)
ROWS = Axes(batch=0, sequence=1, head_dim=2)
PAIR = Axes(batch=1, heads=2, sequence=3, head_dim=4)


def both(axes, layer=0):
    return [("past_key", "key", layer, axes, "present_key"), ("past_value", "value", layer, axes, "present_value")]


#: Form: (model, what each cache is).
GROWING = {
    "sequence_first": (forms.sequence_first, both(Axes(batch=0, heads=2, sequence=1, head_dim=3))),
    "merged_heads": (forms.merged_heads, both(ROWS)),
    "one_head": (forms.one_head, both(ROWS)),
    "latent": (
        forms.latent,
        [("past_part", "key", 0, KV, "present_part"), ("past_latent", "unknown", 0, ROWS, "present_latent")],
    ),
    "latent_head": (
        forms.latent_head,
        [("past_part", "key", 0, KV, "present_part"), ("past_latent", "unknown", 0, KV, "present_latent")],
    ),
    "absorbed": (
        forms.absorbed,
        [("past_part", "key", 0, ROWS, "present_part"), ("past_latent", "unknown", 0, ROWS, "present_latent")],
    ),
    "packed_content": (forms.packed_content, [("past", "unknown", 0, KV, "present")]),
    "packed_pair": (forms.packed_pair, [("past", "unknown", 0, PAIR, "present")]),
    "packed_apart": (lambda: forms.packed_pair(stacks=False), [("past", "unknown", 0, PAIR, "present")]),
    "all_layers": (forms.all_layers, both(PAIR, layer=None)),
    "shared": (forms.shared, both(KV)),
    "quantized": (lambda: forms.quantized("constant"), both(KV)),
    "requantized": (forms.requantized, both(KV)),
}

FIXED = {
    "window_after": (lambda: forms.window("after"), both(KV)),
    "window_before": (lambda: forms.window("before"), both(KV)),
    "ScatterElements": (lambda: forms.in_place("ScatterElements"), both(KV)),
    "ScatterND": (lambda: forms.in_place("ScatterND"), both(KV)),
    "ScatterND_by_place": (lambda: forms.in_place("by place"), both(KV)),
}

SCALES = {
    role: [(f"past_{role}", role, 0, KV, f"present_{role}"), (f"scale_{role}", "unknown", 0, KV, f"next_scale_{role}")]
    for role in ("key", "value")
}


def rows(inventory):
    return [(cache.name, cache.role, cache.layer, cache.axes, cache.write) for cache in inventory.caches]


@pytest.mark.parametrize("form", GROWING | FIXED)
class TestForms:
    def test_every_cache_has_its_kind_and_axes(self, form):
        build, expected = (GROWING | FIXED)[form]
        inventory = graphpass.analyze_caches(build())
        assert rows(inventory) == expected
        assert {cache.kind for cache in inventory.caches} == {"kv"}
        assert inventory.kind == "kv"
        assert (inventory.unpaired_inputs, inventory.unpaired_outputs) == ((), ())

    def test_names_and_order_do_not_matter(self, form):
        build, expected = (GROWING | FIXED)[form]
        rename = Renaming(len(form))
        inventory = graphpass.analyze_caches(shuffled(renamed(build(), rename), 4))
        assert set(rows(inventory)) == {(rename(row[0]), *row[1:4], rename(row[4])) for row in expected}

    def test_all_caches_are_read_by_attention(self, form):
        build, expected = (GROWING | FIXED)[form]
        inventory = graphpass.analyze_caches(build())
        for role in ("key", "value"):
            names = {row[0] for row in expected if row[1] == role}
            if names and form not in {"latent", "latent_head", "absorbed"}:
                assert {getattr(block, role) for block in inventory.attention} == names


@pytest.mark.parametrize("form", GROWING)
def test_the_sequence_axis_grows_in_a_real_step(form):
    model = GROWING[form][0]()
    results = random_step(model)
    for cache in graphpass.analyze_caches(model).caches:
        old, new = results[f"in:{cache.read}"], results[cache.write]
        axis = cache.axes.sequence
        assert (old.shape[axis], new.shape[axis]) == (PAST, PAST + NEW)
        assert (numpy.take(new, range(PAST), axis) == old).all()


@pytest.mark.parametrize("form", [form for form in FIXED if form.startswith("window")])
def test_a_window_moves_in_a_real_step(form):
    model = FIXED[form][0]()
    results = random_step(model)
    for cache in graphpass.analyze_caches(model).caches:
        old, new = results[f"in:{cache.read}"], results[cache.write]
        assert (new[:, :, :-NEW] == old[:, :, NEW:]).all()


@pytest.mark.parametrize("form", [form for form in FIXED if form.startswith("Scatter")])
def test_one_position_is_written_in_a_real_step(form):
    model = FIXED[form][0]()
    results = random_step(model, where=numpy.array([4]))
    for cache in graphpass.analyze_caches(model).caches:
        changed = (results[f"in:{cache.read}"] != results[cache.write]).any((0, 1, 3))
        assert changed.tolist() == [position == 4 for position in range(ROOM)]


def in_openvino(model):
    native = openvino.Core().read_model(model.proto.SerializeToString())
    return OpenVINOModel(native)


def stateful(model, expected):
    """``model`` as OpenVINO's own transformation makes it stateful."""
    native = in_openvino(model).ov_model
    apply_make_stateful_transformation(native, {row[0]: row[4] for row in expected})
    return OpenVINOModel(native)


@pytest.mark.parametrize("form", GROWING | FIXED)
class TestOpenVINO:
    def test_stateless_forms_are_found(self, form):
        build, expected = (GROWING | FIXED)[form]
        inventory = graphpass.analyze_caches(in_openvino(build()))
        assert rows(inventory) == expected
        assert {cache.kind for cache in inventory.caches} == {"kv"}

    def test_stateful_forms_are_found(self, form):
        build, expected = (GROWING | FIXED)[form]
        inventory = graphpass.analyze_caches(stateful(build(), expected))
        assert inventory.stateful
        assert [row[:4] for row in rows(inventory)] == [(row[0] + row[4], *row[1:4]) for row in expected]
        assert {cache.kind for cache in inventory.caches} == {"kv"}


class TestQuantized:
    @pytest.mark.parametrize("how", ["carried", "arithmetic"])
    def test_scales_belong_to_their_quantized_cache(self, how):
        inventory = graphpass.analyze_caches(forms.quantized(how))
        found = {row[0]: row for row in rows(inventory)}
        for role in ("key", "value"):
            for row in SCALES[role]:
                assert found[row[0]] == row
        assert {cache.kind for cache in inventory.caches} == {"kv"}

    def test_evidence_names_the_quantization(self):
        inventory = graphpass.analyze_caches(forms.quantized("arithmetic"))
        assert inventory.cache("scale_key").evidence[-1].startswith("it is the scale with which Multiply ")
        assert inventory.cache("zero_key").evidence[-1].startswith("it is the zero point with which Subtract ")
        assert inventory.cache("past_key").evidence[-1].startswith("quantized: ")
        assert {cache.element_type for cache in inventory.caches} == {"i8", "f32"}

    @pytest.mark.parametrize("how", ["carried", "arithmetic"])
    def test_scales_grow_in_a_real_step(self, how):
        model = forms.quantized(how)
        results = random_step(model)
        for cache in graphpass.analyze_caches(model).caches:
            assert results[cache.write].shape[cache.axes.sequence] == PAST + NEW


class TestEvidence:
    @pytest.mark.parametrize(
        ("form", "cache", "facts"),
        [
            ("shared", "past_key", [" and Softmax ", "shared: several attentions read"]),
            ("all_layers", "past_value", ["several layers in one tensor: Gather "]),
            ("packed_pair", "past", ["keys and values in one tensor: Gather "]),
            ("packed_content", "past", ["keys and values in one tensor: VariadicSplit "]),
            ("latent", "past_latent", ["latent: MatMul ", "the result is the key of", "the result is the value of"]),
            ("window_after", "past_key", ["keeps the last 4: a window of 4 in the state"]),
            ("window_before", "past_key", ["drops old positions before it: a window in the state"]),
            ("quantized", "past_key", ["quantized: DequantizeLinear "]),
            ("ScatterND", "past_key", ["written in place along axis 2 by ScatterNDUpdate ", "room for 9 positions"]),
        ],
    )
    def test_evidence_names_special_forms(self, form, cache, facts):
        evidence = graphpass.analyze_caches((GROWING | FIXED)[form][0]()).cache(cache).evidence
        for fact in facts:
            assert any(fact in line for line in evidence), evidence


class TestUnknown:
    def test_a_cache_without_known_reader_has_axes(self):
        (cache,) = graphpass.analyze_caches(forms.unread()).caches
        assert (cache.kind, cache.axes) == ("unknown", Axes(batch=1, sequence=0))
        assert cache.evidence[1] == "no recognized attention reads the present"
