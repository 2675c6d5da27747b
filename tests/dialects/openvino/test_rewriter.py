"""Edits of OpenVINO models."""

from __future__ import annotations

import numpy
import openvino
import pytest

from graphpass.testing import parse_model

MODEL = """
%x = Parameter : f32[batch, 3, 4]
%turned = Transpose(%x) {order=[0, 2, 1]}
%weights = Softmax(%turned) {axis=-1}
%y = Relu(%weights)
Result(%y) {name=y}
"""


def model_of(text=MODEL):
    return parse_model(text, "openvino")


def the(model, op):
    (node,) = model.graph.of_op(op)
    return node


@pytest.mark.parametrize(("stated", "written"), [(-1, -2), (2, 1)])
def test_axes_keep_their_sign(stated, written):
    model = model_of(MODEL.replace("axis=-1", f"axis={stated}"))
    the(model, "Softmax").native.set_attribute("axis", stated)
    rewriter = model.rewriter()
    rewriter.set_axes(the(model, "Softmax"), [1])
    rewriter.set_axes(the(model, "Transpose"), [1, 2, 0])
    assert rewriter.finish()
    assert the(model, "Softmax").native.get_attributes()["axis"] == written
    assert (the(model, "Softmax").attributes["axis"], the(model, "Transpose").attributes["order"]) == (1, (1, 2, 0))


def test_a_slice_without_steps_takes_each_element():
    model = model_of()
    rewriter, relu = model.rewriter(), the(model, "Relu")
    part = rewriter.op("Slice", relu.source(), [0, 1], [2, 3], name="part", axes=[1, 2])
    rewriter.redirect(relu, 0, part)
    rewriter.finish()
    assert the(model, "Relu").outputs[0].shape[1:] == (2, 2)


def test_inputs_with_users_are_not_dropped():
    model = model_of(f"%idle = Parameter : f32[4]\n{MODEL}")
    rewriter = model.rewriter()
    assert [rewriter.drop_input(name) for name in ("x", "nothing", "idle")] == [False, False, True]
    rewriter.finish()
    assert [port.name for port in model.inputs] == ["x"]


def test_the_name_of_an_output_moves_with_its_source():
    model = model_of()
    rewriter = model.rewriter()
    new = rewriter.op("Tanh", the(model, "Softmax").outputs[0], name="tanh")
    rewriter.redirect(the(model, "Result"), 0, new)
    assert rewriter.finish()
    assert [port.name for port in model.outputs] == ["y"]
    assert "Relu" not in {node.op for node in model.graph.nodes}


def test_uses_are_redirected_by_a_condition():
    model = model_of(MODEL.replace("Relu(%weights)", "Add(%weights, %turned)"))
    turned = the(model, "Transpose").outputs[0]
    rewriter = model.rewriter()
    new = rewriter.op("Tanh", turned, name="new")
    assert rewriter.redirect_uses(turned, new, lambda use: use.node.op == "Add") == 1
    rewriter.finish()
    assert model.graph.producer(the(model, "Softmax").source()).op == "Transpose"
    assert model.graph.producer(the(model, "Add").source(1)).op == "Tanh"


def test_a_variable_starts_from_one_of_several_outputs():
    text = MODEL.replace("%y = Relu(%weights)", "%y, %rest = VariadicSplit(%weights, [1, 3]) {axis=1}")
    model = model_of(text)
    split = the(model, "VariadicSplit")
    rewriter = model.rewriter()
    read = rewriter.add_variable("state", "f32", ("batch", 3, 3), rewriter.native(split.outputs[1]), "read")
    rewriter.add_assign("state", rewriter.op("Tanh", read, name="next"), "write")
    assert rewriter.finish()
    model.validate()
    start = model.graph.producer(the(model, "ReadValue").source())
    assert (start.op, model.graph.producer(start.source())) == ("Concat", the(model, "VariadicSplit"))


def test_a_model_without_edits_is_unchanged():
    assert not model_of().rewriter().finish()


@pytest.mark.parametrize("kind", ["f16", "f32", "i8", "boolean"])
@pytest.mark.parametrize("element_type", ["", None])
def test_views_of_arrays_keep_their_type(kind, element_type):
    whole = (numpy.arange(12).reshape(3, 4) % 3).astype(getattr(openvino.Type, kind).to_dtype())
    for view in (whole[:, 1:3], whole.T, whole[::2]):
        made = model_of().rewriter().constant(view, kind if element_type is None else "", "made")
        assert made.get_element_type() == getattr(openvino.Type, kind)
        numpy.testing.assert_array_equal(made.get_node().data, view)
