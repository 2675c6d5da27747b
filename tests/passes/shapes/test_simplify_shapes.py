"""simplify-shapes: each length read once, nothing left that changes nothing, the same numbers."""

from __future__ import annotations

import numpy
import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import infer
from support.decode import compiled, executed, fused_attention, greedy
from support.models import reference
from support.quick_cases import quick_product
from support.simplified_shapes import before, made, simplified

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.shapes.simplify_shapes import SimplifyShapes

ATTENTION = "ScaledDotProductAttention"
MODELS = ["llama", "gpt2", "gemma3_text", "deepseek_v3", "qwen3_moe", "phi3", "gptj"]


def ends_of_masks(model: OpenVINOModel) -> set[str]:
    """Where the masks of all layers are cut, as the names of the nodes that say it."""
    masks = [op.input_value(3).get_node() for op in model.ov_model.get_ops() if op.get_type_name() == ATTENTION]
    return {mask.input_value(0).get_node().input_value(2).get_node().get_name() for mask in masks}


def test_all_layers_share_one_cut_of_the_mask():
    model = before("llama_12l")
    after, result = simplified(model, identities=False)
    assert result.changed
    assert result.statistics["reads shared"] > 400
    assert (len(ends_of_masks(model)), len(ends_of_masks(after))) == (12, 1)


@pytest.mark.parametrize(("name", "step"), quick_product(MODELS[:5], [(4, 3, 2), (1, 9, 2), (5, 0, 2), (4, 3, 1)]))
def test_the_numbers_stay(name, step):
    """With one row all sequences of the batch share positions."""
    length, past, rows = step
    model = before(name)
    after, _ = simplified(model)
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


@pytest.mark.parametrize(("identities", "name"), quick_product([True, False], MODELS))
def test_decodes_the_reference_tokens_after_padding(name, identities):
    model = PassManager([SimplifyShapes(identities=identities), MakeStateful()]).run(before(name)).model
    expected = reference(name)
    prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
    ready = compiled(model.ov_model)
    assert greedy(ready.create_infer_request(), prompts, 12)[0] == expected["greedy_ids"]
    assert fused_attention(ready) > 0


@pytest.mark.parametrize(
    ("name", "variant"), [(name, "onnx") for name in MODELS if name != "gptj"] + [("qwen3_next", "ov-stateless")]
)
def test_a_second_run_changes_nothing(name, variant):
    """In gptj what was dropped hid that one more length is equal."""
    after, _ = simplified(before(name, variant))
    _, result = simplified(after)
    assert not result.changed


def test_gated_delta_nets_stay_recognisable():
    """The plugin knows them by a scale that is computed of a known dimension."""
    model = PassManager([SimplifyShapes(), MakeStateful()]).run(before("qwen3_next", "ov-stateless")).model
    kinds = executed(compiled(model.ov_model))
    assert kinds["GatedDeltaNet"] == 3
    assert kinds["TensorIterator"] == 0


def test_tensors_naming_an_output_stay():
    x = ops.parameter([-1, 8], openvino.Type.f32)
    same = ops.convert(x, "f32")
    same.output(0).set_names({"named"})
    model = OpenVINOModel(openvino.Model([ops.result(same)], [x], "named"))
    after, result = simplified(model)
    assert not result.changed
    assert [port.name for port in after.outputs] == ["named"]


def test_inputs_keep_their_names_alone():
    x = ops.parameter([-1, 8], openvino.Type.f32)
    same = ops.convert(x, "f32")
    same.output(0).set_names({"inner"})
    after, _ = simplified(made({"out": ops.relu(same)}, x=x))
    assert after.ov_model.inputs[0].get_names() == {"x"}


def test_masks_keep_the_form_of_readable_windows():
    after, _ = simplified(before("gemma3_text"))
    masks = [op.input_value(3).get_node() for op in after.ov_model.get_ops() if "Attention" in op.get_type_name()]
    ends = [(mask, mask.input_value(0).get_node()) for mask in masks if mask.get_type_name() == "Slice"]
    assert len(ends) == 3
    assert all(select.input_value(0).get_node().get_type_name() == "Broadcast" for _, select in ends)


def test_llama_has_no_needless_conversions_left():
    after, result = simplified(before("llama"))
    assert result.changed
    assert result.statistics["Convert dropped"] > 20
    same = [op for op in after.ov_model.get_ops() if op.get_type_name() == "Convert"]
    assert all(op.get_input_element_type(0) != op.get_output_element_type(0) for op in same)


@pytest.mark.parametrize("name", ["llama", "phi3"])
def test_frequencies_are_not_expanded(name):
    after, result = simplified(before(name))
    assert result.changed
    assert result.statistics["broadcasts dropped"] > 0
    products = [op for op in after.ov_model.get_ops() if op.get_type_name() in {"MatMul", "Multiply"}]
    sources = [source for op in products for source in op.input_values()]
    assert not [
        source
        for source in sources
        if source.get_node().get_type_name() == "Broadcast" and source.get_element_type() == openvino.Type.f32
    ]
