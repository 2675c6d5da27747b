"""openvino.genai classifies variables by the shapes of their initializers."""

import numpy
import openvino
import openvino_genai
import pytest
from openvino import opset13 as ops
from openvino._offline_transformations import apply_make_stateful_transformation
from openvino.op.util import Variable, VariableInfo
from support.cache_graphs import TinyDecoder
from support.loaded import openvino_model, reshaped
from support.models import export, reference
from targets.consumers.views import HYBRIDS, STATEFUL, view, views_of

import graphpass
from graphpass.targets.consumers import genai


def sights(model, consumer):
    return {one.cache: one.sees for one in view(model, consumer).caches}


def reinitialised(model, variable, sizes):
    """``model`` with another initial value of one variable: zeros of these sizes after the batch."""
    copy = model.clone()
    native = copy.ov_model
    read = next(
        op
        for op in native.get_ops()
        if op.get_type_name() == "ReadValue" and op.get_attributes()["variable_id"] == variable
    )
    ids = native.input("input_ids")
    batch = ops.gather(ops.shape_of(ids, "i64"), ops.constant([0]), ops.constant(0))
    shape = ops.concat([batch, ops.constant(list(sizes), openvino.Type.i64)], 0)
    read.set_arguments([ops.broadcast(ops.constant(0.0, dtype=openvino.Type.f32), shape).output(0)])
    copy.mark_edited()
    return copy


class TestGenai:
    @pytest.mark.parametrize(
        ("shape", "sees"),
        [
            ((None, 2, 0, 16), "kv"),
            ((0, 2, None, 16), "kv"),
            ((None, 64, 3), "linear"),
            ((None, 64, 0), "linear"),
            ((None, 4, 16, 16), "linear"),
            ((None, 2, 128, 16), "linear"),
            ((1, 2, 0, 16), "nothing"),
            ((None, 2, 0, None), "nothing"),
            ((None, 0, 0, 16), "nothing"),
            ((None, 2, 2, 0, 16), "nothing"),
            ((None, 64), "nothing"),
            (None, "nothing"),
        ],
    )
    def test_the_shape_of_the_initializer_decides(self, shape, sees):
        assert genai.cache_type(shape) == sees

    def test_the_first_initializer_of_rank_4_defines_the_axes(self):
        assert genai.kv_axes([None, (None, 64, 3), (None, 0, 2, 16), (None, 2, 0, 16)]) == (0, 1)
        assert genai.kv_axes([(4, None, 16, 16), (None, 2, 0, 16)]) == (1, 2)
        assert genai.kv_axes([]) == (0, 2)

    def test_a_static_batch_hides_caches(self):
        found = view(reshaped(openvino_model("llama"), 1), "openvino.genai")
        assert found.verdict == "misreads"
        first = "past_key_values.0.keypresent.0.key"
        cause = "its initializer has shape [1, 2, 0, 16]: no dynamic dimensions, expected one"
        assert found.reasons == (f"will overlook {first} and 3 more because {cause}",)
        assert {one.sees for one in found.caches} == {"nothing"}

    def test_an_initializer_with_content_makes_kv_linear(self):
        name = "past_key_values.0.keypresent.0.key"
        model = reinitialised(openvino_model("llama"), name, (2, 128, 16))
        assert sights(model, "openvino.genai")[name] == "linear"
        cause = "its initializer has shape [?, 2, 128, 16]: one dynamic dimension and none of size 0"
        assert view(model, "openvino.genai").reasons == (f"will treat {name} as a linear cache because {cause}",)

    def test_an_empty_initializer_makes_a_linear_state_kv(self):
        name = "cache_params.past.ssm.1cache_params.present.ssm.1"
        model = reinitialised(openvino_model("qwen3_next"), name, (4, 0, 16))
        found = view(model, "openvino.genai")
        assert found.verdict == "misreads"
        assert found.reasons[0].startswith(f"will treat {name} as a KV cache because its initializer has shape")

    def test_no_initializer_hides_caches(self):
        model = TinyDecoder(layers=1).build()
        names = {f"past_key_values.0.{role}": f"present.0.{role}" for role in ("key", "value")}
        apply_make_stateful_transformation(model.ov_model, names)
        model.mark_edited()
        found = view(model, "openvino.genai")
        assert found.verdict == "misreads"
        assert "because it has no initializer" in found.reasons[0]
        assert "will fail because the model has no input beam_idx" in found.reasons

    def test_another_equal_axis_is_trimmed_correctly(self):
        model = stateful(TinyDecoder(layout="BLHD"))
        assert set(sights(model, "openvino.genai").values()) == {"kv"}
        assert view(model, "openvino.genai").verdict == "agrees"

    def test_different_axes_are_trimmed_incorrectly(self):
        model = stateful(TinyDecoder(layout="BHLD", value_layout="BHDL"))
        found = view(model, "openvino.genai")
        assert found.verdict == "misreads"
        assert "will trim" in found.reasons[0]

    def test_a_counter_is_trimmed_with_the_caches(self):
        model = openvino_model("llama").clone()
        info = VariableInfo()
        info.data_shape, info.data_type, info.variable_id = openvino.PartialShape([1]), openvino.Type.i64, "count"
        count = Variable(info)
        counted = openvino.opset6.read_value(ops.constant([0], openvino.Type.i64), count)
        more = ops.add(counted, ops.constant([1], openvino.Type.i64))
        model.ov_model.add_sinks([openvino.opset6.assign(more, count)])
        model.mark_edited()
        assert view(model, "openvino.genai").reasons == ("will trim count, too, which is not a cache",)


def stateful(decoder, more="", *, beam_index=True):
    passes = graphpass.parse(f"make-stateful{{beam-index={'true' if beam_index else 'false'}}}{more}")
    return graphpass.PassManager(passes).run(decoder.build()).model


EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


@pytest.mark.parametrize("path", STATEFUL)
def test_openvino_genai_reads_exports_of_optimum(path):
    view = views_of(path)[2]["openvino.genai"]
    if path.startswith("mamba"):
        assert view.verdict == "misreads"
        assert view.reasons == ("will fail because it never feeds the input cache_position",)
        assert {one.sees for one in view.caches} == {"linear"}
    else:
        assert (view.verdict, view.reasons) == ("agrees", ())


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3_text", "deepseek_v3", "mamba", *HYBRIDS])
def test_openvino_genai_behaves_as_predicted(name):
    view = views_of(f"{name}/ov-stateful/openvino_model.xml")[2]["openvino.genai"]
    prompt = openvino.Tensor(numpy.array([reference(name)["prompt_ids"]], dtype=numpy.int64))
    config = openvino_genai.GenerationConfig(max_new_tokens=4, ignore_eos=True)

    def generate():
        pipeline = openvino_genai.LLMPipeline(export(name, "ov-stateful"), "CPU", ATTENTION_BACKEND="SDPA", **EXACT)
        return list(pipeline.generate(prompt, config).tokens[0])

    if view.verdict == "agrees":
        assert generate() == reference(name)["greedy_ids"][:4]
    else:
        with pytest.raises(RuntimeError, match="position_ids"):
            generate()
