"""drop-identities: what gives its input goes, what says more or is named stays, and so do the numbers."""

from __future__ import annotations

import functools

import openvino
import pytest
from openvino import opset13 as ops
from support.attention_graphs import integers
from support.decode import compiled, fused_attention, greedy
from support.models import export, reference
from support.piped import piped

from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Changed, Unchanged
from graphpass.io import load
from graphpass.passes.attention.fuse_attention import FuseAttention
from graphpass.passes.caches.make_stateful import MakeStateful
from graphpass.passes.convert.to_openvino import ToOpenVINO
from graphpass.passes.masks.expose_window import ExposeWindow
from graphpass.passes.shapes.drop_identities import DropIdentities

MODELS = ["llama", "gpt2", "gemma3_text", "qwen3_moe"]


@functools.cache
def before(name: str) -> OpenVINOModel:
    model = PassManager([ToOpenVINO(), FuseAttention(), ExposeWindow()]).run(load(export(name, "onnx"))).model
    assert isinstance(model, OpenVINOModel)
    return model


def dropped(model: OpenVINOModel) -> tuple[OpenVINOModel, object]:
    return piped(model, DropIdentities())


def kinds(model: OpenVINOModel) -> list[str]:
    return [op.get_type_name() for op in model.ov_model.get_ordered_ops()]


def length_of(x: openvino.Node, axis: int) -> openvino.Node:
    return ops.gather(ops.shape_of(x), integers(axis), ops.constant(0))


X = "x [batch, length, 8]"
FORMS = {
    "slice of the whole": (lambda x, y: ops.slice(x, integers(0), length_of(x, 1), integers(1), integers(1)), True),
    "slice of another's length": (
        lambda x, y: ops.slice(x, integers(0), length_of(y, 1), integers(1), integers(1)),
        False,
    ),
    "reversed": (
        lambda x, y: ops.slice(x, integers(-1), integers(-(2**63)), integers(-1), integers(1)),
        False,
    ),
    "broadcast to its shape": (lambda x, y: ops.broadcast(x, ops.shape_of(x)), True),
    "broadcast to another's shape": (lambda x, y: ops.broadcast(x, ops.shape_of(y)), False),
    "reshape to its shape": (lambda x, y: ops.reshape(x, ops.shape_of(x), False), True),
    "reshape to another's shape": (lambda x, y: ops.reshape(x, ops.shape_of(y), False), False),
    "conversion to its type": (lambda x, y: ops.convert(x, "f32"), True),
    "conversion": (lambda x, y: ops.convert(x, "f64"), False),
    "transposed in order": (lambda x, y: ops.transpose(x, integers(0, 1, 2)), True),
    "transposed": (lambda x, y: ops.transpose(x, integers(1, 0, 2)), False),
    "joined alone": (lambda x, y: ops.concat([x], 1), True),
    "joined with itself": (lambda x, y: ops.concat([x, x], 1), False),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_operator(form):
    build, goes = FORMS[form]
    x, y = (ops.parameter([-1, -1, 8], openvino.Type.f32) for _ in range(2))
    made = build(x, y)
    model = OpenVINOModel(openvino.Model([ops.result(ops.relu(made)), ops.result(ops.relu(y))], [x, y], "made"))
    after, result = dropped(model)
    assert isinstance(result, Changed) is goes
    assert (made.get_type_name() in kinds(after)) is not goes


def test_a_reshape_that_tells_the_number_of_heads_stays():
    """Nobody else infers it: paged attention forgets sinks where it cannot see the query's heads."""
    x = ops.parameter([-1, -1, 64], openvino.Type.f32)
    shape = ops.concat([ops.gather(ops.shape_of(x), integers(0, 1), ops.constant(0)), integers(-1, 16)], 0)
    query = ops.transpose(ops.reshape(x, shape, False), integers(0, 2, 1, 3))
    told = ops.reshape(query, integers(0, 4, -1, 0), True)
    model = OpenVINOModel(openvino.Model([ops.result(ops.relu(told))], [x], "heads"))
    after, _ = dropped(model)
    assert after.ov_model.outputs[0].get_partial_shape()[1] == openvino.Dimension(4)


def test_what_an_output_is_named_after_stays():
    x = ops.parameter([-1, 8], openvino.Type.f32)
    same = ops.convert(x, "f32")
    same.output(0).set_names({"named"})
    model = OpenVINOModel(openvino.Model([ops.result(same)], [x], "named"))
    after, result = dropped(model)
    assert isinstance(result, Unchanged)
    assert [port.name for port in after.outputs] == ["named"]


def test_inputs_keep_their_names_alone():
    x = ops.parameter([-1, 8], openvino.Type.f32)
    x.output(0).set_names({"x"})
    same = ops.convert(x, "f32")
    same.output(0).set_names({"inner"})
    after, _ = dropped(OpenVINOModel(openvino.Model([ops.result(ops.relu(same))], [x], "named")))
    assert after.ov_model.inputs[0].get_names() == {"x"}


def test_masks_stay_in_the_form_from_which_windows_are_read():
    after, _ = dropped(before("gemma3_text"))
    masks = [op.input_value(3).get_node() for op in after.ov_model.get_ops() if "Attention" in op.get_type_name()]
    ends = [(mask, mask.input_value(0).get_node()) for mask in masks if mask.get_type_name() == "Slice"]
    assert len(ends) == 3
    assert all(select.input_value(0).get_node().get_type_name() == "Broadcast" for _, select in ends)


def test_llama_has_no_conversions_left():
    after, result = dropped(before("llama"))
    assert isinstance(result, Changed)
    assert result.statistics["Convert dropped"] == kinds(before("llama")).count("Convert") - kinds(after).count(
        "Convert"
    )
    same = [op for op in after.ov_model.get_ops() if op.get_type_name() == "Convert"]
    assert all(op.get_input_element_type(0) != op.get_output_element_type(0) for op in same)


@pytest.mark.parametrize("name", MODELS)
def test_decodes_the_reference_tokens_behind_padding(name):
    after, _ = dropped(before(name))
    model = compiled(PassManager([MakeStateful()]).run(after).model.ov_model)
    expected = reference(name)
    prompts = [expected["prompt_ids"], [17, 4, *expected["prompt_ids"]]]
    assert greedy(model.create_infer_request(), prompts, 12)[0] == expected["greedy_ids"]
    assert fused_attention(model) > 0


@pytest.mark.parametrize("name", MODELS)
def test_twice(name):
    after, _ = dropped(before(name))
    _, result = dropped(after)
    assert isinstance(result, Unchanged)
