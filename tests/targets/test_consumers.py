"""Models that others misread, and why."""

import dataclasses

import openvino
import pytest
from openvino import opset13 as ops
from openvino._offline_transformations import apply_make_stateful_transformation
from openvino.op.util import Variable, VariableInfo
from support.cache_graphs import Renaming, TinyDecoder, renamed
from support.loaded import onnx_model, openvino_model, reshaped

import graphpass
from graphpass.targets.consumers import genai, view_caches


def view(model, consumer):
    inventory = graphpass.analyze_caches(model)
    return next(view for view in view_caches(model, inventory) if view.consumer == consumer)


def sights(model, consumer):
    return {one.cache: one.sees for one in view(model, consumer).caches}


def reinitialised(model, variable, sizes):
    """``model`` with another initial value of one variable: zeros of these sizes behind the batch."""
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


@pytest.mark.parametrize(
    ("model", "consumers"),
    [
        (onnx_model, ["optimum-intel", "ONNX Runtime OpenVINO EP", "onnxruntime-genai"]),
        (openvino_model, ["NPUW"]),
        (lambda name: openvino_model(name, "ov-stateless"), ["optimum-intel"]),
    ],
    ids=["onnx", "ov-stateful", "ov-stateless"],
)
def test_unknown_names_are_not_found(model, consumers):
    anonymous = renamed(model("llama"), Renaming(3))
    for consumer in consumers:
        found = view(anonymous, consumer)
        assert found.verdict == "misreads", consumer
        assert {one.sees for one in found.caches} == {"nothing"}


def test_consumers_that_pair_by_order_misread_reordered_outputs():
    model = onnx_model("llama").clone()
    outputs = list(model.proto.graph.output)
    del model.proto.graph.output[:]
    model.proto.graph.output.extend([outputs[0], outputs[2], outputs[1], *outputs[3:]])
    model.mark_edited()
    for consumer in ("optimum-intel", "ONNX Runtime OpenVINO EP"):
        found = view(model, consumer)
        assert found.verdict == "misreads"
        pairs = "past_key_values.0.key with present.0.value, because it pairs by order, and so on (2 in all)"
        assert found.reasons[0] == f"will pair {pairs}"
    assert view(model, "onnxruntime-genai").verdict == "agrees"


def test_a_cache_of_unknown_kind_is_a_disagreement():
    model = TinyDecoder(layers=1).build()
    inventory = graphpass.analyze_caches(model)
    unknown = dataclasses.replace(inventory.caches[0], kind="unknown", evidence=("read by nobody",))
    doubtful = dataclasses.replace(inventory, caches=(unknown, *inventory.caches[1:]))
    found = next(one for one in view_caches(model, doubtful) if one.consumer == "optimum-intel")
    assert found.verdict == "cannot tell"
    assert unknown.name in found.reasons[0]
