"""NPUW's view of caches: names of variables, and what its rules refuse."""

from __future__ import annotations

import pytest
from openvino.op.util import VariableInfo
from support.cache_graphs import TinyDecoder
from support.loaded import openvino_model
from targets import state_mutants
from targets.consumers.views import HYBRIDS, STATEFUL, views_of

import graphpass
from graphpass.dialects.openvino.variables import named_kind
from graphpass.targets.npu.view import view


def seen(model):
    return view(model, graphpass.analyze_caches(model))


def recalled(model, names):
    """``model`` with other variable ids."""
    copy = model.clone()
    for variable in copy.ov_model.get_variables():
        if variable.info.variable_id in names:
            info = VariableInfo()
            info.data_shape, info.data_type = variable.info.data_shape, variable.info.data_type
            info.variable_id = names[variable.info.variable_id]
            variable.update(info)
    copy.mark_edited()
    return copy


@pytest.mark.parametrize(
    ("name", "sees"),
    [
        ("past_key_values.3.valuepresent.3.value", "kv"),
        ("cache_params.past.key.0cache_params.present.key.0", "kv"),
        ("cache_params.past.conv.0cache_params.present.conv.0", "linear"),
        ("past_key_0present_key_0", "nothing"),
        ("past_key_values.0.conv_statepresent.0.conv_state", "nothing"),
    ],
)
def test_the_name_decides(name, sees):
    assert named_kind(name) == sees


def test_a_conv_state_called_like_a_key():
    name = "past_key_values.0.keypresent.0.key"
    found = seen(recalled(openvino_model("lfm2"), {"cache_params.past.conv.0cache_params.present.conv.0": name}))
    assert {one.cache: one.sees for one in found.caches}[name] == "kv"
    assert f"will fail on {name} because its name is that of a kv cache" in found.reasons


def test_other_names_are_not_known():
    found = seen(recalled(openvino_model("llama"), {"past_key_values.0.keypresent.0.key": "k0"}))
    assert found.verdict == "misreads"
    assert found.reasons[0].startswith("will fail on k0 because its name is not like")


def test_the_layout_is_fixed():
    model = graphpass.PassManager(graphpass.parse("make-stateful")).run(TinyDecoder(layout="BLHD").build()).model
    assert any("it is not laid out as [batch, heads, sequence, head_dim]" in reason for reason in seen(model).reasons)


def test_further_inputs_are_taken_for_caches():
    passes = graphpass.parse("make-stateful{beam-index=false},insert-reorder{form=gpu}")
    reasons = seen(graphpass.PassManager(passes).run(TinyDecoder().build()).model).reasons
    assert any(
        reason.startswith("will fail on src_idx and dst_idx because NPUW treats inputs of other names as caches")
        for reason in reasons
    )
    assert "will fail on beam_idx because the model has no such input" in reasons


def test_operators_between_gather_and_concat_are_reported():
    reasons = seen(state_mutants.with_slice(openvino_model("llama"))).reasons
    assert any("Slice is between the Gather and the Concat" in reason for reason in reasons)


@pytest.mark.parametrize("path", [path for path in STATEFUL if not path.startswith(("mamba", "zamba2", *HYBRIDS))])
def test_npuw_reads_the_names_of_dense_models(path):
    view = views_of(path)[2]["NPUW"]
    if path.startswith("deepseek_v3"):
        assert view.verdict == "misreads"
        assert view.reasons[0].startswith("will fail on it because the size of the result of NonZero depends on")
        assert {one.sees for one in view.caches} == {"kv"}
    else:
        assert view.verdict == "agrees"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("granitemoehybrid", "will fail on it because the size of the result"),
        ("lfm2", "will compute incorrect results with cache_params.past.conv.0"),
        ("qwen3_next", "will compute incorrect results with cache_params.past.conv.0"),
    ],
)
def test_npuw_fails_on_hybrids_and_reads_their_names(name, words):
    _, inventory, views = views_of(f"{name}/ov-stateful/openvino_model.xml")
    (reason,) = views["NPUW"].reasons
    assert reason.startswith(words)
    assert [one.sees for one in views["NPUW"].caches] == [cache.kind for cache in inventory.caches]
