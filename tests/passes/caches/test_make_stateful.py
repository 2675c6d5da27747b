"""`make-stateful` on real exports and on small decoders in other layouts, run by the CPU plugin."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support import layout_forms
from support.cache_graphs import HEADS, Renaming, TinyDecoder, renamed, shuffled
from support.decode import Decoder, compiled, fused_attention, greedy
from support.loaded import exported, onnx_model, openvino_after, openvino_model, reshaped
from support.models import fixtures, reference
from support.quick_cases import quick_subset
from support.unknown_caches import decoder_with_unknown_cache

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.to_openvino import ToOpenVINO

DENSE = ["llama", "gpt2", "qwen3", "qwen3_moe", "gemma3_text", "deepseek_v3", "llama_12l"]
HYBRID = ["mamba", "lfm2", "granitemoehybrid", "qwen3_next"]


def stateful(model: graphpass.Model, **options: bool) -> OpenVINOModel:
    result = PassManager([MakeStateful(**options)]).run(model).model
    assert isinstance(result, OpenVINOModel)
    return result


def converted(name: str) -> OpenVINOModel:
    return openvino_after(exported(f"{name}/ov-stateless"), MakeStateful())


def of_type(native: openvino.Model, kind: str) -> list[openvino.Node]:
    return [op for op in native.get_ordered_ops() if op.get_type_name() == kind]


def genai_sees(native: openvino.Model) -> dict[str, str]:
    """openvino.genai's rule on the initializer's shape (utils.cpp, get_cache_types): variable id -> kind."""
    seen = {}
    for read in of_type(native, "ReadValue"):
        shape = read.input_value(0).get_partial_shape() if read.get_input_size() else None
        if shape is None:
            continue
        dynamic, zeros = (
            sum(size.is_dynamic for size in shape),
            sum(size.is_static and size.get_length() == 0 for size in shape),
        )
        if dynamic == 1 and len(shape) in {3, 4}:
            seen[read.get_variable_id()] = "kv" if len(shape) == 4 and zeros == 1 else "linear"
    return seen


class TestStructure:
    @pytest.mark.parametrize("name", DENSE)
    def test_ids_are_both_names_concatenated_in_order_of_layers(self, name):
        native = converted(name).ov_model
        layers = len(of_type(native, "ReadValue")) // 2
        ids = [f"past_key_values.{i}.{role}present.{i}.{role}" for i in range(layers) for role in ("key", "value")]
        assert [variable.info.variable_id for variable in native.get_variables()] == ids
        assert [sink.get_variable_id() for sink in native.get_sinks()] == ids
        assert layers == reference_layers(name)

    @pytest.mark.parametrize("name", HYBRID)
    def test_variables_have_the_ids_of_optimum(self, name):
        ids = {variable.info.variable_id for variable in converted(name).ov_model.get_variables()}
        theirs = {variable.info.variable_id for variable in openvino_model(name).ov_model.get_variables()}
        assert ids == theirs

    @pytest.mark.parametrize("name", DENSE + HYBRID)
    def test_openvino_genai_recognizes_every_cache(self, name):
        inventory = graphpass.analyze_caches(converted(name))
        assert genai_sees(converted(name).ov_model) == {cache.name: cache.kind for cache in inventory.caches}

    @pytest.mark.parametrize("name", DENSE + HYBRID)
    def test_every_cache_starts_as_zeros_and_is_reordered_by_beam_idx_on_its_batch_axis(self, name):
        native = converted(name).ov_model
        beam = next(port.get_node() for port in native.inputs if "beam_idx" in port.get_names())
        assert (str(beam.get_output_partial_shape(0)), beam.get_output_element_type(0).to_string()) == ("[?]", "i32")
        reads = of_type(native, "ReadValue")
        assert len(reads) == len(graphpass.analyze_caches(openvino_model(name, "ov-stateless")).caches)
        for read in reads:
            (reader,) = read.output(0).get_target_inputs()
            gather = reader.get_node()
            assert (gather.get_type_name(), gather.get_type_info().version_id) == ("Gather", "opset8")
            assert gather.input_value(1).get_node().get_friendly_name() == beam.get_friendly_name()
            assert gather.input_value(2).get_node().data.item() == 0
            initial = read.input_value(0).get_node()
            assert initial.get_type_name() == "Broadcast"
            assert initial.input_value(0).get_node().data.item() == 0
            batch = initial.input_value(1).get_node().input_value(0).get_node()
            shape = batch.input_value(0).get_node()
            assert shape.input_value(0).get_node().get_friendly_name() == "input_ids"

    @pytest.mark.parametrize("name", ["llama", "granitemoehybrid"])
    def test_other_inputs_and_outputs_stay(self, name):
        before, after = openvino_model(name, "ov-stateless"), converted(name)
        carried = {cache.read for cache in graphpass.analyze_caches(before).caches}
        assert [port.name for port in after.inputs] == [
            port.name for port in before.inputs if port.name not in carried
        ] + ["beam_idx"]
        assert [port.name for port in after.outputs] == ["logits"]

    def test_statistics_count_variables_by_kind(self):
        (record,) = PassManager([MakeStateful()]).run(openvino_model("lfm2", "ov-stateless")).records
        assert record.result.statistics == {"variables": 6, "kv": 4, "linear": 2}

    def test_output_is_deterministic(self, tmp_path):
        for name in ("one", "two"):
            graphpass.save(stateful(openvino_model("granitemoehybrid", "ov-stateless")), tmp_path / f"{name}.xml")
        assert (tmp_path / "one.xml").read_bytes() == (tmp_path / "two.xml").read_bytes()

    def test_cross_attention_caches_stay_inputs(self):
        after = stateful(graphpass.load(fixtures() / "t5/ov-stateless/openvino_decoder_with_past_model.xml"))
        assert len(of_type(after.ov_model, "ReadValue")) == 4
        assert sum(".encoder." in port.name for port in after.inputs) == 4
        assert {cache.kind for cache in graphpass.analyze_caches(after).caches} == {"kv", "cross"}


def reference_layers(name: str) -> int:
    return {"gemma3_text": 4, "llama_12l": 12}.get(name, 2)


@pytest.mark.parametrize("name", DENSE + HYBRID)
class TestTokens:
    def test_equal_the_reference_also_after_a_reset_and_in_a_batch(self, name):
        expected = reference(name)
        prompt, tokens = expected["prompt_ids"], expected["greedy_ids"]
        request = compiled(converted(name).ov_model).create_infer_request()
        assert greedy(request, [prompt], 12) == [tokens]
        assert greedy(request, [[7, 3, 11]], 2) != [tokens[:2]]
        assert greedy(request, [prompt], 12) == [tokens]
        assert greedy(request, [prompt] * 2, 4) == [tokens[:4]] * 2

    def test_beam_idx_swaps_sequences(self, name):
        prompt = reference(name)["prompt_ids"]
        prompts = numpy.array([prompt, prompt[::-1]])
        straight, swapped = (Decoder(compiled(converted(name).ov_model).create_infer_request()) for _ in range(2))
        straight.step(prompts)
        swapped.step(prompts)
        token = numpy.array([[5], [5]])
        first, second = straight.step(token), swapped.step(token, beams=[1, 0])
        assert not numpy.allclose(first[0], first[1], atol=1e-4)
        numpy.testing.assert_allclose(second, first[::-1], atol=1e-5)


DECODERS = [
    *(TinyDecoder(layout=layout) for layout in ("BHLD", "BLHD", "LBHD", "HBLD", "BHDL")),
    TinyDecoder(layout="LBHD", fused=False),
    TinyDecoder(value_layout="BHDL"),
    TinyDecoder(fused=False, softcap=True),
    TinyDecoder(fused=False, sink=True),
    TinyDecoder(reads_length=True),
    TinyDecoder(cache_type=openvino.Type.f16),
    TinyDecoder(batch=2),
    TinyDecoder(batch=2, cache_type=openvino.Type.f16, layout="BLHD"),
    TinyDecoder(names=("p{layer}x{role}", "q{role}{layer}")),
]


class TestLayouts:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize(
        ("decoder", "beam_index"),
        quick_subset(
            [(decoder, beam_index) for decoder in DECODERS for beam_index in (True, False)],
            lambda decoder, beam_index: str(decoder),
            lambda decoder, beam_index: (decoder.layout, beam_index),
        ),
        ids=str,
    )
    def test_tokens_equal_the_stateless_model(self, decoder, beam_index):
        if not beam_index and decoder.cache_type == openvino.Type.f16 and decoder.batch < 0:
            pytest.skip(
                "the CPU plugin (2026.4.1) does not compile a converted cache without a Gather: Invalid graph status"
            )
        before = decoder.build()
        past, present = decoder.names
        presents = {
            past.format(layer=i, role=role): present.format(layer=i, role=role)
            for i in (0, 1)
            for role in ("key", "value")
        }
        prompts, axis = [[1, 5, 9, 2, 7], [3, 3, 8, 1, 4]], decoder.layout.index("B")
        expected = greedy(
            compiled(before.ov_model).create_infer_request(), prompts, 8, presents=presents, batch_axis=axis
        )
        after = stateful(before, beam_index=beam_index)
        request = compiled(after.ov_model).create_infer_request()
        assert greedy(request, prompts, 8) == expected
        assert greedy(request, prompts, 8) == expected
        assert any(port.name == "beam_idx" for port in after.inputs) == beam_index
        if beam_index:
            swapped = Decoder(request)
            swapped.step(numpy.array(prompts))
            logits = swapped.step(numpy.array([[expected[1][0]], [expected[0][0]]]), beams=[1, 0])
            assert list(logits.argmax(-1)) == [expected[1][1], expected[0][1]]

    def test_a_converted_cache_still_fuses(self):
        """The Convert stands between ReadValue and Gather, where the CPU plugin looks for it."""
        after = stateful(TinyDecoder(cache_type=openvino.Type.f16).build())
        assert fused_attention(compiled(after.ov_model)) == 2
        assert {read.get_output_element_type(0).to_string() for read in of_type(after.ov_model, "ReadValue")} == {"f16"}
        for read in of_type(after.ov_model, "ReadValue"):
            assert [reader.get_node().get_type_name() for reader in read.output(0).get_target_inputs()] == ["Convert"]

    def test_a_static_batch_stays_static(self):
        after = stateful(reshaped(openvino_model("llama", "ov-stateless"), 2)).ov_model
        assert str(after.input("beam_idx").get_partial_shape()) == "[2]"
        for sink in after.get_sinks():
            assert str(sink.input_value(0).get_partial_shape()) == "[2,2,?,16]"
        expected = reference("llama")
        assert (
            greedy(compiled(after).create_infer_request(), [expected["prompt_ids"]] * 2, 12)
            == [expected["greedy_ids"]] * 2
        )

    def test_a_static_batch_needs_no_input_for_its_size(self):
        native = reshaped(openvino_model("lfm2", "ov-stateless"), 1).ov_model
        assert stateful(OpenVINOModel(native)).ov_model.get_sinks()

    def test_caches_of_an_f16_export_are_f16(self):
        # Where attention is not fused, the CPU plugin (2026.4.1) cannot run a cache of f16 in f32.
        source = PassManager([ToOpenVINO(), FuseAttention()]).run(onnx_model("llama", "onnx-fp16")).model
        after = stateful(source).ov_model
        assert {read.get_output_element_type(0).to_string() for read in of_type(after, "ReadValue")} == {"f16"}
        expected = reference("llama")
        tokens = greedy(compiled(after).create_infer_request(), [expected["prompt_ids"]], 4)
        assert tokens == [expected["greedy_ids"][:4]]

    def test_random_names_and_order(self):
        rename = Renaming(seed=5)
        source = shuffled(renamed(openvino_model("qwen3_next", "ov-stateless"), rename), seed=2)
        after = stateful(source)
        ids = {cache.name for cache in graphpass.analyze_caches(after).caches}
        assert ids == {f"{cache.read}{cache.write}" for cache in graphpass.analyze_caches(source).caches}
        assert sorted(genai_sees(after.ov_model).values()) == ["kv"] * 2 + ["linear"] * 6

    def test_the_batch_is_not_taken_from_a_fixed_first_dimension(self):
        """position_ids [3, batch, length], as qwen2_vl has them, in a model whose other inputs have unknown names."""
        native = renamed(openvino_model("llama", "ov-stateless"), Renaming(seed=1)).ov_model
        positions = ops.parameter(openvino.PartialShape([3, -1, -1]), openvino.Type.i64)
        others = native.get_parameters()
        model = openvino.Model(native.get_results(), [positions, *others], "reordered")
        after = stateful(OpenVINOModel(model)).ov_model
        for read in of_type(after, "ReadValue"):
            batch = read.input_value(0).get_node().input_value(1).get_node().input_value(0).get_node()
            assert len(batch.input_value(0).get_node().input_value(0).get_partial_shape()) == 2


def linear_model() -> openvino.Model:
    """A recurrent state ``[batch, 3, 4]`` whose present is the second output of a VariadicSplit."""
    ids = ops.parameter(openvino.PartialShape([-1, -1]), openvino.Type.i64, name="input_ids")
    past = ops.parameter(openvino.PartialShape([-1, 3, 4]), openvino.Type.f32, name="state")
    for node in (ids, past):
        node.output(0).set_names({node.get_friendly_name()})
    token = ops.reshape(ops.reduce_sum(ops.convert(ids, "f32"), ops.constant([1])), ops.constant([-1, 1, 1]), False)
    moved = ops.add(ops.multiply(past, ops.constant(numpy.float32(0.5))), token)
    split = ops.variadic_split(ops.concat([moved, moved], 1), ops.constant(1), ops.constant([3, 3]))
    split.output(1).set_names({"next"})
    logits = ops.reduce_sum(moved, ops.constant([1]), True)
    logits.output(0).set_names({"logits"})
    return openvino.Model([ops.result(logits), ops.result(split.output(1))], [ids, past], "linear")


def test_a_present_of_a_node_with_several_outputs():
    after = stateful(OpenVINOModel(linear_model()))
    (sink,) = after.ov_model.get_sinks()
    assert sink.input_value(0).get_index() == 1
    decoder = Decoder(compiled(after.ov_model).create_infer_request())
    found = [float(decoder.step(numpy.array([[token]]))[0, 0]) for token in (1, 2, 3)]
    assert found == [3 * 1, 3 * 2.5, 3 * 4.25]


def test_a_past_with_several_users():
    """All readers see the reordered cache: the append, its length, and an output of the old cache."""
    model = TinyDecoder(reads_length=True, layers=1).build()
    native = model.ov_model
    past = next(port for port in native.inputs if "past_key_values.0.key" in port.get_names())
    native.add_results([ops.result(ops.reduce_sum(past.get_node(), ops.constant([2])))])
    after = stateful(model).ov_model
    read = next(read for read in of_type(after, "ReadValue") if ".key" in read.get_variable_id())
    (reader,) = read.output(0).get_target_inputs()
    kinds = {reader.get_node().get_type_name() for reader in reader.get_node().output(0).get_target_inputs()}
    assert kinds == {"ShapeOf", "Concat", "ReduceSum"}


@pytest.mark.parametrize("axis", [0, -4])
@pytest.mark.parametrize("how", ["Gather", "Slice"])
def test_the_batch_is_not_read_from_a_variable(how, axis):
    """As torch.onnx writes it; its length is."""
    model = TinyDecoder(reads_length=True, layers=1).build()
    native = model.ov_model
    past = next(port for port in native.inputs if "past_key_values.0.key" in port.get_names())
    shape, zero, one = ops.shape_of(past, "i32"), ops.constant([0]), ops.constant([1])
    pick = (
        ops.gather(shape, ops.constant(axis), ops.constant(0))
        if how == "Gather"
        else ops.slice(shape, ops.constant([axis]), ops.constant([axis + 1]), one, zero)
    )
    counted = ops.negative(pick)
    native.add_results([ops.result(counted)])
    after = stateful(model).ov_model
    sources, pending = set(), [after.outputs[-1].get_node()]
    while pending:
        node = pending.pop()
        sources.add(node.get_friendly_name())
        pending += [source.get_node() for source in node.input_values()]
    assert "input_ids" in sources
    assert not any("past_key_values" in source for source in sources)
    assert after.outputs[-1].get_element_type() == openvino.Type.i32
    assert after.outputs[-1].get_partial_shape() == openvino.PartialShape([] if how == "Gather" else [1])


class TestRefusals:
    def refuse(self, model, error, number, **options):
        before = model.digest()
        with pytest.raises(error) as caught:
            PassManager([MakeStateful(**options)]).run(model)
        assert (caught.value.id, caught.value.exit_code) == (number, 4)
        assert model.digest() == before
        return caught.value

    def test_a_second_run_is_refused(self):
        assert "stateful already" in self.refuse(converted("llama"), PreconditionError, "GP302").message

    def test_an_export_without_caches_is_refused(self):
        error = self.refuse(openvino_model("llama", "ov-nocache"), PreconditionError, "GP302")
        assert "past_key_values" in error.hint

    @pytest.mark.parametrize("name", ["t5", "whisper"])
    def test_a_prefill_decoder_is_refused(self, name):
        model = graphpass.load(fixtures() / name / "ov-stateless/openvino_decoder_model.xml")
        assert "present.1.decoder.key" in self.refuse(model, PreconditionError, "GP314").message

    @pytest.mark.parametrize(
        ("name", "present"),
        [
            ("llama", "present.1.value"),
            ("lfm2", "cache_params.present.conv.0"),
            ("mamba", "cache_params.present.ssm.1"),
        ],
    )
    def test_a_missing_present_is_refused(self, name, present):
        model = openvino_model(name, "ov-stateless").clone()
        result = next(port.get_node() for port in model.ov_model.outputs if present in port.get_names())
        model.ov_model.remove_result(result)
        past = present.replace("cache_params.present", "cache_params.past").replace("present.1", "past_key_values.1")
        assert past in self.refuse(model, PreconditionError, "GP314").message

    def test_an_input_called_beam_idx(self):
        model = openvino_model("llama", "ov-stateless").clone()
        beam = ops.parameter(openvino.PartialShape([-1]), openvino.Type.i32, name="beam_idx")
        beam.output(0).set_names({"beam_idx"})
        model.ov_model.add_parameters([beam])
        self.refuse(model, PreconditionError, "GP318")
        assert stateful(model, beam_index=False).ov_model.get_sinks()

    def test_an_unknown_dimension(self):
        """The pass fails half-way, after it added nodes, and the model is as it was."""
        decoder = TinyDecoder()
        model = decoder.build()
        last = decoder.parameters[-1]
        last.set_partial_shape(openvino.PartialShape([-1, -1, -1, 4]))
        (append,) = (use.get_node() for use in last.output(0).get_target_inputs())
        heads = ops.parameter(openvino.PartialShape([4]), openvino.Type.i64, name="heads")
        heads.output(0).set_names({"heads"})
        append.input_value(1).get_node().input_value(0).get_node().input(1).replace_source_output(heads.output(0))
        model.ov_model.add_parameters([heads])
        model.ov_model.validate_nodes_and_infer_types()
        error = self.refuse(model, UnsupportedError, "GP316")
        assert "dimension 1" in error.message

    def test_a_cache_of_unknown_kind(self):
        model = (
            graphpass.PassManager(graphpass.parse("to-openvino")).run(decoder_with_unknown_cache(keep="chosen")).model
        )
        self.refuse(model, UnsupportedError, "GP315")

    def test_duplicate_variable_ids(self):
        """``ab`` + ``c`` and ``a`` + ``bc`` are one id."""
        names = {("key", 0): ("ab", "c"), ("value", 0): ("a", "bc")}
        decoder = TinyDecoder(layers=1)
        model = decoder.build()
        for (role, layer), (past, present) in names.items():
            for ports, old, new in (
                (model.ov_model.inputs, f"past_key_values.{layer}.{role}", past),
                (model.ov_model.outputs, f"present.{layer}.{role}", present),
            ):
                port = next(port for port in ports if old in port.get_names())
                port.set_names({new})
                port.get_node().set_friendly_name(new)
                if port.get_node().get_type_name() == "Result":
                    port.get_node().input_value(0).set_names({new})
        self.refuse(model, UnsupportedError, "GP313")


def test_sizes_that_the_input_does_not_declare():
    """onnxruntime-genai's builder (0.18) names head_dim ``kv_cache_dim``; appended keys have 4 channels in 3 heads."""
    decoder = TinyDecoder()
    model = decoder.build()
    for past in decoder.parameters[2:]:
        past.set_partial_shape(openvino.PartialShape([-1, -1, -1, -1]))
    model.ov_model.validate_nodes_and_infer_types()
    declared, implied = (compiled(stateful(one).ov_model) for one in (TinyDecoder().build(), model))
    assert fused_attention(implied) == fused_attention(declared) == 2
    prompts = [[1, 5, 9, 14, 20], [3, 2]]
    assert greedy(implied.create_infer_request(), prompts, 4) == greedy(declared.create_infer_request(), prompts, 4)


def test_heads_of_the_tiny_decoder():
    (variable, *_) = stateful(TinyDecoder().build()).ov_model.get_variables()
    assert variable.info.data_shape[1].get_length() == HEADS


@pytest.mark.parametrize("how", ["ScatterElements", "ScatterND"])
def test_a_cache_of_fixed_capacity_is_refused(how):
    """It started empty, and the first write failed at run time."""
    with pytest.raises(UnsupportedError, match="always has 9 positions") as caught:
        PassManager([ToOpenVINO(), MakeStateful()]).run(layout_forms.in_place(how))
    assert caught.value.id == "GP326"
