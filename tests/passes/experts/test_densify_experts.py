"""densify-experts: sizes no longer depend on the routing, and the numbers stay."""

from __future__ import annotations

import functools

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import infer, integers
from support.decode import compiled, greedy
from support.loaded import openvino_model
from support.models import export, reference
from support.pipelines import run_passes

import graphpass
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.experts.densify_experts import DensifyExperts
from graphpass.targets.npu.rules import data_dependent
from graphpass.testing import parse_model

#: Experts in all layers of what was exported.
EXPERTS = {("qwen3_moe", "onnx"): 8, ("deepseek_v3", "onnx"): 4, ("deepseek_v3", "ov-stateless"): 4}


@functools.cache
def before(name: str, variant: str) -> OpenVINOModel:
    model = graphpass.load(export(name, variant))
    if variant == "onnx":
        model = PassManager([ToOpenVINO(), FuseAttention()]).run(model).model
    assert isinstance(model, OpenVINOModel)
    return model


def run(model: graphpass.Model) -> tuple[OpenVINOModel, object]:
    return run_passes(model, DensifyExperts())


@pytest.mark.parametrize(("name", "variant"), EXPERTS)
class TestModels:
    def test_no_size_depends_on_the_routing(self, name, variant):
        after, result = run(before(name, variant))
        assert result.changed
        assert result.statistics == {"experts": EXPERTS[name, variant]}
        assert data_dependent(before(name, variant).graph) is not None
        assert data_dependent(after.graph) is None
        assert not run(after)[1].changed

    def test_decodes_the_reference_tokens_after_padding(self, name, variant):
        after, _ = run(before(name, variant))
        request = compiled(PassManager([MakeStateful()]).run(after).model.ov_model).create_infer_request()
        expected = reference(name)
        prompts = [expected["prompt_ids"], [17, 4, 9, *expected["prompt_ids"]]]
        assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]


@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_models_without_sparse_routing_stay(name):
    model = openvino_model(name)
    after, result = run(model)
    assert not result.changed
    assert after.digest() == model.digest()


def test_indices_with_possible_duplicates_stay():
    """A mask that is an input may choose one expert twice for a token."""
    rows, mask = ops.parameter([-1, 8], openvino.Type.f32), ops.parameter([2, -1], openvino.Type.boolean)
    places = ops.split(ops.non_zero(mask, "i64"), ops.constant(0), 2)
    chosen = ops.squeeze(places.output(1), integers(0))
    taken = ops.relu(ops.gather(rows, chosen, ops.constant(0)))
    index = ops.broadcast(ops.unsqueeze(chosen, integers(1)), ops.shape_of(taken))
    added = ops.scatter_elements_update(rows, index, taken, ops.constant(0))
    model = OpenVINOModel(openvino.Model([ops.result(added)], [rows, mask], "experts"))
    assert not run(model)[1].changed


ONE_AFTER_ANOTHER = """%scores = Parameter : f32[tokens, 4]
%hidden = Parameter : f32[tokens, 8]
%best, %first = TopK(%scores, 1) {{axis=1}}
%sizes = ShapeOf(%first)
%lowest = Broadcast({fill}, %sizes)
%others = ScatterElementsUpdate(%scores, {place}, %lowest) {{axis=1}}
%next, %second = TopK(%others, 1) {{axis=1}}
%chosen = Concat(%first, %second) {{axis=1}}
%marks = OneHot(%chosen, 4, 1, 0) {{axis=-1}}
%by_expert = Transpose(%marks) {{order=[2, 1, 0]}}
%own = Gather(%by_expert, 2) {{axis=0}}
%found = NonZero(%own) {{output_type=i64}}
%slot, %token = Split(%found) {{axis=0, num_splits=2}}
%at = Squeeze(%token) {{axes=[0]}}
%rows = Gather(%hidden, %at) {{axis=0}}
%made = Sigmoid(%rows)
%shape = ShapeOf(%made)
%column = Unsqueeze(%at) {{axes=[1]}}
%index = Broadcast(%column, %shape)
%whole = ShapeOf(%hidden)
%zeros = Broadcast(0.0, %whole)
%sum = ScatterElementsUpdate(%zeros, %index, %made) {{axis=0}}
Result(%sum) {{name=sum}}
"""


@pytest.mark.parametrize(
    ("fill", "place", "count"), [("-inf", "%first", 1), ("-1.0", "%first", 0), ("-inf", "%second_best", 0)]
)
def test_experts_chosen_one_after_another(fill, place, count):
    """Phi-3.5 MoE chooses the second expert after it hides the first."""
    text = ONE_AFTER_ANOTHER.format(fill=fill, place=place)
    text = text.replace("%others =", "%low, %second_best = TopK(%scores, 1) {axis=1, mode=min}\n%others =")
    model = parse_model(text, "openvino")
    after, result = run(model)
    assert result.statistics == ({"experts": 1} if count else {})
    given = {"scores": numpy.random.default_rng(0).standard_normal((5, 4), numpy.float32)}
    given["hidden"] = numpy.random.default_rng(1).standard_normal((5, 8), numpy.float32)
    numpy.testing.assert_array_equal(infer(after.ov_model, given)["sum"], infer(model.ov_model, given)["sum"])
