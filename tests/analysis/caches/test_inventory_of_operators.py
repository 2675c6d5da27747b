"""Caches inside operators."""

from __future__ import annotations

import numpy
import pytest
from support import operator_forms as forms
from support.graph_builder import BATCH, HEADS, HIDDEN, NEW, PAST, ROOM, SIZE, builder_with_hidden_states, random_step

import graphpass
from graphpass.dialects.onnx.model import OnnxModel
from graphpass.errors import UnsupportedError
from graphpass.ir.cache import Axes

KV = Axes(batch=0, heads=1, sequence=2, head_dim=3)

GROWING = {
    "attention_23": lambda: forms.attention(23),
    "attention_24": lambda: forms.attention(24),
    "grouped_query": forms.grouped_query,
    "multi_head": forms.multi_head,
}


def packed_attention(first: tuple[int, ...] = (2,)) -> OnnxModel:
    """com.microsoft Attention: another operator of the same name, with one past for both."""
    build = builder_with_hidden_states(contrib=True)
    past = build.input("past", [*first, "B", HEADS, "P", SIZE])
    weights = build.weight(HIDDEN, 3 * forms.WIDTH), build.weight(3 * forms.WIDTH)
    out, present = build.op(
        "Attention", "hidden", *weights, "", past, outputs=2, domain=forms.MS, num_heads=HEADS, unidirectional=1
    )
    build.present(present, "present", [*first, "B", HEADS, "T", SIZE])
    build.output(out, "logits", ["B", "N", forms.WIDTH])
    return build.model()


def masked_multi_head() -> OnnxModel:
    """com.microsoft DecoderMaskedMultiHeadAttention on one buffer for past and present."""
    build = builder_with_hidden_states(contrib=True)
    past = build.pasts(["B", HEADS, ROOM, SIZE])
    length = build.constant(numpy.array([PAST], numpy.int32))
    out, key, value = build.op(
        "DecoderMaskedMultiHeadAttention",
        *(forms.flat(build) for _ in range(3)),
        *("", ""),
        *past,
        length,
        outputs=3,
        domain=forms.MS,
        num_heads=HEADS,
        past_present_share_buffer=1,
    )
    build.presents(key, value, ["B", HEADS, ROOM, SIZE])
    build.output(out, "logits", ["B", "N", forms.WIDTH])
    return build.model()


IN_PLACE = {"external": forms.external, "masked_multi_head": masked_multi_head}


def rows(model):
    inventory = graphpass.analyze_caches(model)
    assert (inventory.unpaired_inputs, inventory.unpaired_outputs) == ((), ())
    return [(cache.name, cache.kind, cache.role, cache.layer, cache.axes, cache.write) for cache in inventory.caches]


def keys_and_values():
    return [(f"past_{role}", "kv", role, 0, KV, f"present_{role}") for role in ("key", "value")]


@pytest.mark.parametrize("form", GROWING | IN_PLACE)
def test_keys_and_values_are_found(form):
    model = (GROWING | IN_PLACE)[form]()
    found = rows(model)
    assert found[:2] == keys_and_values()
    blocks = graphpass.analyze_caches(model).attention
    assert (blocks[0].key, blocks[0].value) == ("past_key", "past_value")


@pytest.mark.parametrize("form", GROWING)
def test_the_sequence_axis_grows_in_a_real_step(form):
    results = random_step(GROWING[form]())
    for role in ("key", "value"):
        assert results[f"present_{role}"].shape == (BATCH, HEADS, PAST + NEW, SIZE)
        assert (results[f"present_{role}"][:, :, :PAST] == results[f"in:past_{role}"]).all()


def test_attention_25_keeps_all_positions_of_its_window():
    """No runtime here runs opset 25's window."""
    assert rows(forms.attention(25)) == keys_and_values()


def test_one_position_is_written_in_a_real_step():
    results = random_step(forms.external(), where=numpy.full(BATCH, PAST), seen=numpy.full(BATCH, PAST + NEW))
    for role in ("key", "value"):
        changed = (results[f"present_{role}"] != results[f"in:past_{role}"]).any((0, 1, 3))
        assert changed.tolist() == [position == PAST for position in range(ROOM)]


def test_evidence_names_the_write_in_place():
    cache = graphpass.analyze_caches(forms.external()).cache("past_key")
    assert cache.evidence[0].startswith("written in place along axis 2 by TensorScatter ")
    assert cache.evidence[0].endswith("with room for 9 positions")
    assert cache.evidence[1].startswith("the result is the key of Attention ")


def test_evidence_names_the_shared_buffer():
    evidence = graphpass.analyze_caches(masked_multi_head()).cache("past_key").evidence
    assert "past and present share one buffer of a fixed capacity" in evidence


def test_a_window_of_the_operator_is_not_a_window_of_the_state():
    evidence = graphpass.analyze_caches(forms.grouped_query(window=4)).cache("past_key").evidence
    assert evidence[-1] == "a window of 4 in the mask only; the cache keeps all positions"


def test_cross_attention_caches_are_found():
    assert rows(forms.multi_head())[2:] == [
        ("cross_key", "cross", "cross_key", 0, KV, None),
        ("cross_value", "cross", "cross_value", 0, KV, None),
    ]


def test_a_past_of_too_few_axes_is_an_error():
    """ONNX Runtime's quantize_dynamic writes this for ONNX's Attention."""
    with pytest.raises(UnsupportedError, match=r"com\.microsoft\.Attention .* has 4 axes, expected 5") as failure:
        graphpass.analyze_caches(packed_attention(first=()))
    assert failure.value.id == "GP310"


def test_the_cache_of_packed_attention_is_found():
    model = packed_attention()
    axes = Axes(batch=1, heads=2, sequence=3, head_dim=4)
    assert rows(model) == [("past", "kv", "unknown", 0, axes, "present")]
    assert random_step(model)["present"].shape == (2, BATCH, HEADS, PAST + NEW, SIZE)
    (fact,) = graphpass.analyze_caches(model).caches[0].evidence
    assert fact.startswith("keys and values in one tensor, both appended inside com.microsoft.Attention ")


class TestLinear:
    def expected(self, batch):
        return [
            ("past_conv", "linear", "conv", 0, Axes(batch=batch), "present_conv"),
            ("past_state", "linear", "recurrent", 0, Axes(batch=batch), "present_state"),
        ]

    def test_states_of_com_microsoft_operators_are_found(self):
        model = forms.linear()
        assert rows(model) == self.expected(0)
        results = random_step(model)
        for name in ("conv", "state"):
            assert results[f"present_{name}"].shape == results[f"in:past_{name}"].shape
        assert (results["present_conv"][:, :, :-1] == results["in:past_conv"][:, :, 1:]).all()

    def test_states_of_onnx_operators_are_found(self):
        """No step: ONNX Runtime 1.31 does not know this opset."""
        assert rows(forms.linear(domain="", opset=27)) == self.expected(0)

    def test_states_of_the_last_positions(self):
        """No step: ONNX Runtime 1.31 has it on CUDA alone."""
        assert rows(forms.linear(window=2)) == self.expected(1)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_states_of_recurrent_networks_are_of_kind_other(kind, layers):
    model = forms.recurrent(kind, layers)
    names = ("h", "c") if kind == "LSTM" else ("h",)
    assert {(*row[:3], *row[4:]) for row in rows(model)} == {
        (f"past_{name}", "other", "recurrent", Axes(batch=1), f"present_{name}") for name in names
    }
    assert random_step(model)["present_h"].shape == (layers, BATCH, SIZE)
    evidence = graphpass.analyze_caches(model).cache("past_h").evidence[0]
    assert evidence.startswith(f"an ordinary recurrent network's state, replaced by {kind} ")
