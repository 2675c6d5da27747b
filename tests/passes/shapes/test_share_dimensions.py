"""share-dimensions: each length read once, the same numbers, no operator that plugins recognise broken up."""

from __future__ import annotations

import functools

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import infer
from support.decode import compiled, executed, fused_attention, greedy
from support.models import export, reference
from support.piped import piped

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Changed, Unchanged
from graphpass.io import load
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.shapes.share_dimensions import ShareDimensions

ATTENTION = "ScaledDotProductAttention"
MODELS = ["llama", "gpt2", "gemma3_text", "deepseek_v3", "qwen3_moe"]


@functools.cache
def before(name: str, variant: str = "onnx") -> OpenVINOModel:
    model = load(export(name, variant))
    passes = [ToOpenVINO(), FuseAttention()] if variant == "onnx" else [FuseAttention()]
    model = PassManager(passes).run(model).model
    assert isinstance(model, OpenVINOModel)
    return model


def shared(model: OpenVINOModel) -> tuple[OpenVINOModel, object]:
    return piped(model, ShareDimensions())


def ends_of_masks(model: OpenVINOModel) -> set[str]:
    """Where the masks of all layers are cut, as the names of the nodes that say it."""
    masks = [op.input_value(3).get_node() for op in model.ov_model.get_ops() if op.get_type_name() == ATTENTION]
    return {mask.input_value(0).get_node().input_value(2).get_node().get_name() for mask in masks}


def test_all_layers_cut_their_mask_at_one_place():
    model = before("llama_12l")
    after, result = shared(model)
    assert isinstance(result, Changed)
    assert result.statistics["reads shared"] > 400
    assert (len(ends_of_masks(model)), len(ends_of_masks(after))) == (12, 1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("length", "past", "rows"), [(4, 3, 2), (1, 9, 2), (5, 0, 2), (4, 3, 1)])
def test_the_numbers_stay(name, length, past, rows):
    """With ``rows`` 1 all sequences of the batch share one row of positions."""
    model = before(name)
    after, _ = shared(model)
    random = numpy.random.default_rng(0)
    given = {
        "input_ids": random.integers(0, 320, [2, length]),
        "attention_mask": numpy.ones([2, past + length], numpy.int64),
        "position_ids": numpy.tile(numpy.arange(past, past + length), (rows, 1)),
    }
    given["attention_mask"][0, 0] = 0
    for port in model.ov_model.inputs:
        if "past" in port.get_any_name():
            shape = [2, *(past if size.is_dynamic else size.get_length() for size in list(port.partial_shape)[1:])]
            given[port.get_any_name()] = random.standard_normal(shape).astype(numpy.float32)
    names = {port.get_any_name() for port in model.ov_model.inputs}
    given = {key: value for key, value in given.items() if key in names}
    expected, found = infer(model.ov_model, given), infer(after.ov_model, given)
    for key, value in expected.items():
        numpy.testing.assert_array_equal(found[key], value, err_msg=key)


@pytest.mark.parametrize("name", MODELS)
def test_decodes_the_reference_tokens_behind_padding(name):
    model = PassManager([ShareDimensions(), MakeStateful()]).run(before(name)).model
    expected = reference(name)
    prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
    request = compiled(model.ov_model).create_infer_request()
    assert greedy(request, prompts, 12)[0] == expected["greedy_ids"]


@pytest.mark.parametrize(("name", "variant"), [(name, "onnx") for name in MODELS] + [("qwen3_next", "ov-stateless")])
def test_twice(name, variant):
    after, _ = shared(before(name, variant))
    _, result = shared(after)
    assert isinstance(result, Unchanged)


def test_a_model_that_reads_no_dimensions_is_left():
    x = ops.parameter([-1, 4], openvino.Type.f32)
    model = OpenVINOModel(openvino.Model([ops.result(ops.relu(x))], [x], "plain"))
    _, result = shared(model)
    assert isinstance(result, Unchanged)


def test_gated_delta_nets_stay_recognisable():
    """The plugin knows them by a scale that is computed of a known dimension."""
    model = PassManager([ShareDimensions(), MakeStateful()]).run(before("qwen3_next", "ov-stateless")).model
    kinds = executed(compiled(model.ov_model))
    assert kinds["GatedDeltaNet"] == 3
    assert kinds["TensorIterator"] == 0


def test_no_mask_waits_for_the_attention_that_reads_it():
    """The plugin makes the grown cache an output of attention; what reads its length must not come before."""
    model = PassManager([ShareDimensions(), MakeStateful()]).run(before("qwen3")).model
    assert fused_attention(compiled(model.ov_model)) == 2
