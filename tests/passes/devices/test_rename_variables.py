"""rename-variables: optimum's names, counted within a kind, whatever an exporter called the caches."""

from __future__ import annotations

import openvino
import pytest
from openvino.op.util import Variable, VariableInfo
from support.cache_graphs import Renaming, TinyDecoder, renamed
from support.decode import compiled, greedy
from support.layout_forms import latent_head
from support.loaded import onnx_model, openvino_model
from support.models import export, reference
from support.pipelines import run_passes
from support.unknown_caches import decoder_with_unknown_cache

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Skipped
from graphpass.engine.pipeline import parse
from graphpass.errors import UnsupportedError
from graphpass.io import load
from graphpass.ir.declaration import parse_declaration
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.caches.make_stateless import MakeStateless
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.devices.rename_variables import RenameVariables

OTHERS = TinyDecoder(names=("in_{layer}_{role}", "out_{layer}_{role}"))


def variables(model: OpenVINOModel) -> set[str]:
    return {variable.info.variable_id for variable in model.ov_model.get_variables()}


def keeping_ports(rename: Renaming):
    """Renames what nobody addresses by name, as other exporters would."""
    kept = {"input_ids", "attention_mask", "position_ids", "beam_idx", "logits"}
    return lambda name: name if name in kept else rename(name)


@pytest.mark.parametrize("name", ["llama_12l", "lfm2", "qwen3_next"])
def test_unknown_names_become_names_of_optimum(name):
    model = renamed(openvino_model(name), keeping_ports(Renaming(seed=3)))
    after, result = run_passes(model, RenameVariables())
    assert result.changed
    assert variables(after) == variables(openvino_model(name))
    expected = {cache.name: cache.layer for cache in graphpass.analyze_caches(openvino_model(name)).caches}
    assert {cache.name: cache.layer for cache in graphpass.analyze_caches(after).caches} == expected


def test_layers_are_counted_within_their_kind():
    model = onnx_model("lfm2", "onnx-genai")
    after, result = run_passes(model, *graphpass.get_target("cpu").pipeline(model), RenameVariables())
    assert result.changed
    assert variables(after) == variables(openvino_model("lfm2"))
    expected = reference("lfm2")
    assert greedy(compiled(after.ov_model).create_infer_request(), [expected["prompt_ids"]], 12) == [
        expected["greedy_ids"]
    ]


@pytest.mark.parametrize("name", ["llama", "granitemoehybrid"])
def test_known_names_stay(name):
    model = openvino_model(name)
    after, result = run_passes(model, RenameVariables())
    assert not result.changed
    assert after.digest() == model.digest()


def test_a_second_run_changes_nothing():
    once, _ = run_passes(OTHERS.build(), MakeStateful(), RenameVariables())
    assert not run_passes(once, RenameVariables())[1].changed


def test_stateless_again_has_the_new_names(tmp_path):
    decoder = OTHERS.build()
    after, _ = run_passes(decoder, MakeStateful(), RenameVariables())
    graphpass.save(after, tmp_path / "model.xml")
    stateless, _ = run_passes(graphpass.load(tmp_path / "model.xml"), MakeStateless())
    assert {"past_key_values.1.value", "past_key_values.0.key"} <= {port.name for port in stateless.inputs}
    assert "present.1.key" in {port.name for port in stateless.outputs}


def test_encoder_decoders_are_unchanged():
    model = graphpass.load(export("t5", "ov-stateful") / "openvino_decoder_model.xml")
    after, result = run_passes(model, RenameVariables())
    assert isinstance(result, Skipped)
    assert after.digest() == model.digest()


def test_declarations_follow_the_name():
    decoder = OTHERS.build()
    decoder.declare([parse_declaration("in_0_key=kv,sequence=2,role=key")])
    after, _ = run_passes(decoder, MakeStateful(), RenameVariables())
    assert [said.name for said in after.declarations] == ["past_key_values.0.keypresent.0.key"]


def test_an_unknown_role_is_refused():
    model = decoder_with_unknown_cache()
    model.declare([parse_declaration("past=kv,sequence=1,batch=0")])
    with pytest.raises(UnsupportedError, match=r"role of cache past\w+ is unknown") as caught:
        run_passes(model, ToOpenVINO(), MakeStateful(), RenameVariables())
    assert caught.value.id == "GP342"
    assert "role=key or value" in str(caught.value.hint)


def test_a_latent_gets_the_missing_role_of_its_layer():
    after, _ = run_passes(latent_head(), ToOpenVINO(), MakeStateful(), RenameVariables())
    assert variables(after) == {f"past_key_values.0.{role}present.0.{role}" for role in ("key", "value")}


@pytest.mark.parametrize(("name", "kind"), [("llama", "kv"), ("qwen3_next", "linear")])
def test_packed_caches_must_be_unpacked_first(name, kind):
    packed = PassManager(parse(f"pack{{only={kind}}}")).run(load(export(name, "ov-stateful"))).model
    with pytest.raises(UnsupportedError, match="is packed") as caught:
        run_passes(packed, RenameVariables())
    assert caught.value.id == "GP342"
    assert caught.value.hint == "run unpack before rename-variables"


def test_a_taken_name_is_refused():
    model, _ = run_passes(OTHERS.build(), MakeStateful())
    info = VariableInfo()
    info.data_shape, info.data_type = openvino.PartialShape([1]), openvino.Type.f32
    info.variable_id = "past_key_values.1.valuepresent.1.value"
    model.ov_model.add_variables([Variable(info)])
    with pytest.raises(UnsupportedError, match=info.variable_id) as caught:
        RenameVariables().run(model)
    assert caught.value.id == "GP343"
