"""`make-stateless` undoes `make-stateful`, and takes apart what optimum made stateful."""

from __future__ import annotations

import openvino
import pytest
from support.cache_graphs import Renaming, TinyDecoder, renamed
from support.decode import compiled, greedy
from support.loaded import exported, openvino_after, openvino_model, reshaped
from support.models import fixtures, reference

import graphpass
from graphpass.engine.manager import PassManager
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.ir.types import Port
from graphpass.passes.caches.insert_reorder import InsertReorder
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.caches.make_stateless import MakeStateless

DENSE = ["llama", "gpt2", "qwen3", "qwen3_moe", "gemma3_text", "deepseek_v3", "llama_12l"]
HYBRID = ["mamba", "lfm2", "granitemoehybrid", "qwen3_next"]


def run(model: graphpass.Model, *passes: graphpass.Pass) -> graphpass.Model:
    return PassManager(passes).run(model).model


def by_name(ports: tuple[Port, ...]) -> dict[str, Port]:
    return {port.name: port for port in ports}


def names_of(ports: list[openvino.Output]) -> set[frozenset[str]]:
    return {frozenset(port.get_names()) for port in ports}


@pytest.mark.parametrize("name", DENSE + HYBRID)
class TestInverse:
    def test_ports_are_restored(self, name):
        before = exported(f"{name}/ov-stateless")
        after = openvino_after(before, MakeStateful(), MakeStateless())
        assert by_name(after.inputs) == by_name(before.inputs)
        assert by_name(after.outputs) == by_name(before.outputs)
        assert names_of(after.ov_model.inputs) == names_of(before.ov_model.inputs)
        assert names_of(after.ov_model.outputs) == names_of(before.ov_model.outputs)
        assert not after.ov_model.get_variables()
        assert not after.ov_model.get_sinks()

    def test_caches_follow_the_other_ports_by_layer(self, name):
        after = openvino_after(exported(f"{name}/ov-stateless"), MakeStateful(), MakeStateless())
        caches = graphpass.analyze_caches(after).caches
        assert [port.name for port in after.inputs][-len(caches) :] == [cache.read for cache in caches]
        assert [port.name for port in after.outputs] == ["logits", *(cache.write for cache in caches)]
        assert graphpass.analyze_caches(exported(f"{name}/ov-stateless")).caches == caches

    def test_decodes_the_reference_tokens(self, name):
        expected = reference(name)
        after = openvino_after(exported(f"{name}/ov-stateless"), MakeStateful(), MakeStateless())
        request = compiled(after.ov_model).create_infer_request()
        assert greedy(request, [expected["prompt_ids"]] * 2, 12) == [expected["greedy_ids"]] * 2

    def test_stateful_exports_of_optimum_compute_the_same(self, name):
        theirs = openvino_model(name, "ov-stateless")
        after = openvino_after(exported(f"{name}/ov-stateful"), MakeStateless())
        assert by_name(after.inputs) == by_name(theirs.inputs)
        assert by_name(after.outputs) == by_name(theirs.outputs)
        expected = reference(name)
        request = compiled(after.ov_model).create_infer_request()
        assert greedy(request, [expected["prompt_ids"]], 4) == [expected["greedy_ids"][:4]]

    def test_stateful_stateless_stateful_keeps_variables(self, name):
        once = openvino_after(exported(f"{name}/ov-stateless"), MakeStateful())
        again = openvino_after(once, MakeStateless(), MakeStateful())
        ids = [variable.info.variable_id for variable in once.ov_model.get_variables()]
        assert [variable.info.variable_id for variable in again.ov_model.get_variables()] == ids
        assert graphpass.analyze_caches(again).caches[0].shape == graphpass.analyze_caches(once).caches[0].shape


def test_output_is_deterministic(tmp_path):
    for name in ("one", "two"):
        graphpass.save(run(openvino_model("granitemoehybrid"), MakeStateless()), tmp_path / f"{name}.xml")
    assert (tmp_path / "one.xml").read_bytes() == (tmp_path / "two.xml").read_bytes()
    assert (tmp_path / "one.bin").read_bytes() == (tmp_path / "two.bin").read_bytes()


@pytest.mark.parametrize("through_a_file", [True, False])
def test_names_of_unknown_families_are_restored(tmp_path, through_a_file):
    before = renamed(openvino_model("lfm2", "ov-stateless"), Renaming(seed=9))
    stateful = run(before, MakeStateful())
    if through_a_file:
        graphpass.save(stateful, tmp_path / "model.xml")
        stateful = graphpass.load(tmp_path / "model.xml")
    after = run(stateful, MakeStateless())
    assert {port.name for port in after.inputs} >= {cache.read for cache in graphpass.analyze_caches(before).caches}
    assert by_name(after.outputs) == by_name(before.outputs)


def test_unknown_names_get_the_names_of_openvino():
    stateful = renamed(openvino_model("llama"), lambda name: name if name == "beam_idx" else f"x{name}")
    after = run(stateful, MakeStateless())
    first = "xpast_key_values.0.keypresent.0.key"
    assert f"input_restored.{first}" in by_name(after.inputs)
    assert f"output_restored.{first}" in by_name(after.outputs)


def test_metadata_of_make_stateful_is_removed():
    before = openvino_model("llama", "ov-stateless")
    after = run(before, MakeStateful(), MakeStateless())
    assert set(after.ov_model.rt_info) == set(before.ov_model.rt_info)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "decoder",
    [
        TinyDecoder(cache_type=openvino.Type.f16),
        TinyDecoder(layout="LBHD"),
        TinyDecoder(batch=2),
        TinyDecoder(reads_length=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("beam_index", [True, False])
def test_small_decoders_compute_the_same(decoder, beam_index):
    before = decoder.build()
    after = run(before, MakeStateful(beam_index=beam_index), MakeStateless())
    assert by_name(after.inputs) == by_name(before.inputs)
    assert by_name(after.outputs) == by_name(before.outputs)
    prompts, axis = [[1, 5, 9, 2, 7], [3, 3, 8, 1, 4]], decoder.layout.index("B")
    first, second = (
        greedy(compiled(model.ov_model).create_infer_request(), prompts, 6, batch_axis=axis)
        for model in (before, after)
    )
    assert first == second


def test_a_static_batch_stays():
    before = reshaped(openvino_model("granitemoehybrid", "ov-stateless"), 1)
    after = run(before, MakeStateful(), MakeStateless())
    assert by_name(after.inputs) == by_name(before.inputs)


def test_reorder_inputs_stay_in_the_stateless_model():
    """The reorder stays in the graph: its inputs belong to the stateless model, too."""
    after = run(openvino_model("llama"), InsertReorder(), MakeStateless())
    assert {"src_idx", "dst_idx"} <= set(by_name(after.inputs))
    expected = reference("llama")
    request = compiled(after.ov_model).create_infer_request()
    assert greedy(request, [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]


class TestRefusals:
    def test_a_stateless_model_is_refused(self):
        for model in (openvino_model("llama", "ov-stateless"), run(openvino_model("llama"), MakeStateless())):
            with pytest.raises(PreconditionError) as caught:
                run(model, MakeStateless())
            assert (caught.value.id, caught.value.exit_code) == ("GP302", 4)

    @pytest.mark.parametrize("name", ["t5", "whisper"])
    def test_variables_without_assign_are_refused(self, name):
        model = graphpass.load(fixtures() / name / "ov-stateful/openvino_decoder_model.xml")
        before = model.digest()
        with pytest.raises(UnsupportedError) as caught:
            run(model, MakeStateless())
        assert caught.value.id == "GP315"
        assert model.digest() == before
