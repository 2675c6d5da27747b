"""Names of nodes that do not depend on the process."""

import numpy
import openvino
import openvino.opset13 as ops
import pytest
from dialects.openvino.small_models import llama, relu
from onnx import numpy_helper
from support import loop_forms
from support.models import export

from graphpass import PassManager, load, parse
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.dialects.openvino.names import all_ops, stabilise_names
from graphpass.io import write_model
from graphpass.verify import compare


@pytest.mark.parametrize("model", ["llama", "gpt2", "qwen3_moe", "t5", "whisper", "mamba"])
def test_names_of_a_conversion_do_not_depend_on_the_process(model):
    folder = "onnx-raw" if model == "mamba" else "onnx"
    file = "decoder_model_merged.onnx" if model in {"t5", "whisper"} else "model.onnx"
    names = []
    for round_ in range(3):
        converted = OpenVINOModel(openvino.Core().read_model(export(model, folder) / file))
        if round_ == 2:  # a clone's names are set: they must be stable before
            converted = converted.clone()
        converted.stabilise_names()
        names.append([op.get_friendly_name() for op in all_ops(converted.ov_model)])
    assert names[0] == names[1] == names[2]
    assert len(set(names[0])) == len(names[0])


def test_the_name_of_a_model_does_not_depend_on_the_process():
    names = set()
    for model in (relu("x"), relu("x"), relu("x").clone()):
        stabilise_names(model)
        names.add(model.get_friendly_name())
    assert names == {"Model0"}
    named = relu("x")
    named.set_friendly_name("mine")
    stabilise_names(named)
    assert named.get_friendly_name() == "mine"


def test_stabilise_names_keeps_names_and_shapes_of_ports():
    model = openvino.Core().read_model(export("llama", "onnx") / "model.onnx")
    before = [(port.get_names(), port.get_partial_shape()) for port in [*model.inputs, *model.outputs]]
    stabilise_names(model)
    assert [(port.get_names(), port.get_partial_shape()) for port in [*model.inputs, *model.outputs]] == before


def test_names_shared_by_bodies_round_trip(tmp_path):
    """The frontend copies constants into bodies, names and all; OpenVINO numbers them when it reads the model."""
    loops = loop_forms.deep(2)
    loops.proto.graph.initializer.append(numpy_helper.from_array(numpy.array(True), "go_on"))
    for node in loops.proto.graph.node:
        if node.op_type == "Loop":
            node.input[1] = "go_on"
            next(inner for inner in node.attribute[0].g.node if inner.op_type == "Identity").input[0] = "go_on"
    model = PassManager(parse("to-openvino")).run(loops).model
    write_model(model, tmp_path / "model.xml")
    assert compare(loops, load(tmp_path / "model.xml"), steps=4).passed


def test_stabilise_names_leaves_fixed_names_alone():
    model = relu("x")
    relu_node = model.get_results()[0].input_value(0).get_node()
    relu_node.set_friendly_name("Relu_0")
    stabilise_names(model, kept={"Relu_0"})
    assert relu_node.get_friendly_name() == "Relu_0"
    relu_node.set_friendly_name("Relu_77")
    stabilise_names(model, kept={"Relu_0"})
    assert relu_node.get_friendly_name() == "Relu_1"
    stabilise_names(model)
    assert relu_node.get_friendly_name() == "Relu_0"


def test_a_given_name_equal_to_the_generated_one_stays():
    ov_model = relu("x")
    node = ov_model.get_results()[0].input_value(0).get_node()
    assert node.get_friendly_name() == node.get_name()
    model = OpenVINOModel(ov_model, fixed_names={node.get_name()})
    model.stabilise_names()
    assert node.get_friendly_name() == node.get_name()


def test_new_nodes_of_a_read_model_get_stable_names():
    names = []
    for _ in range(2):
        model = llama()
        node = next(op for op in model.ov_model.get_ordered_ops() if op.get_type_name() == "Multiply")
        added = ops.negative(node.input_value(0))
        node.input(0).replace_source_output(added.output(0))
        model.stabilise_names()
        names.append(added.get_friendly_name())
    assert names == ["Negative_0", "Negative_0"]
