"""Repaired declarations of shapes."""

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from support.models import export

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.onnx.repairs import repair_shapes

FLOAT = TensorProto.FLOAT


def loaded(folder, shape, *declared):
    """A model that scales ``x`` of ``shape``, and declares the scale as each of ``declared``."""
    ports = [helper.make_tensor_value_info(name, FLOAT, shape) for name in ("x", "y")]
    scale = numpy_helper.from_array(numpy.array([0.5], numpy.float32), "scale")
    known = [helper.make_tensor_value_info("scale", *one) for one in declared]
    nodes = [helper.make_node("Mul", ["x", "scale"], ["y"])]
    graph = helper.make_graph(nodes, "scaled", ports[:1], ports[1:], [scale], value_info=known)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(proto, folder / "model.onnx")
    return OnnxModel.load(folder / "model.onnx")


def test_sizes_as_text_are_numbers(tmp_path):
    model = loaded(tmp_path, ["batch", "2", "x16", "16", "0"])
    for port in (*model.inputs, *model.outputs):
        assert port.shape == ("batch", 2, "x16", 16, "0")
    assert model.graph.parameters["x"].shape == ("batch", 2, "x16", 16, "0")


def test_negative_sizes_are_dynamic(tmp_path):
    model = loaded(tmp_path, [-1, 4])
    assert [port.shape for port in (*model.inputs, *model.outputs)] == [(None, 4)] * 2


def test_sizes_of_outputs_alone_are_names():
    model = OnnxModel.load(export("t5", "onnx") / "decoder_with_past_model.onnx")
    assert next(port.shape for port in model.outputs if port.name == "logits") == ("batch_size", "1", 320)
    assert not model.edited


def test_types_contradicting_an_initializer_are_removed(tmp_path):
    for wrong in ((FLOAT, []), (FLOAT, [2]), (TensorProto.INT64, [1])):
        model = loaded(tmp_path, ["batch", 4], wrong)
        assert model.graph.parameters["x"].shape == ("batch", 4)  # its graph is built, by onnx's inference
        assert not model.proto.graph.value_info


def test_a_constant_has_the_shape_of_its_data_not_the_declared_one(tmp_path):
    """onnxruntime-genai's builder (0.18) declares ``[1]`` as a scalar; the file stays unchanged."""
    ports = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("x", "y")]
    one = numpy_helper.from_array(numpy.ones(1, numpy.float32))
    nodes = [helper.make_node("Constant", [], ["one"], "one", value=one), helper.make_node("Mul", ["x", "one"], ["y"])]
    known = [helper.make_tensor_value_info("one", FLOAT, [])]
    graph = helper.make_graph(nodes, "scaled", ports[:1], ports[1:], value_info=known)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "one.onnx"
    )
    model = OnnxModel.load(tmp_path / "one.onnx")
    shapes = {node.name: node.outputs[0].shape for node in model.graph.nodes if node.op == "Constant"}
    assert (shapes, model.edited) == ({"one": (1,)}, False)


def repeating(folder, total):
    """A model that adds new keys to the past, and declares them as ``total`` positions where it repeats them."""
    ports = [
        helper.make_tensor_value_info(name, FLOAT, ["batch", size]) for name, size in (("past", "P"), ("new", "S"))
    ]
    known = [helper.make_tensor_value_info(name, FLOAT, ["batch", 1, total]) for name in ("one", "twice")]
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["present"], axis=1),
        helper.make_node("Unsqueeze", ["present", "axes"], ["one"]),
        helper.make_node("Add", ["one", "one"], ["twice"]),
        helper.make_node("ReduceMean", ["twice"], ["mean"]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, FLOAT, size)
        for name, size in (("present", ["batch", "T"]), ("mean", [1, 1, 1]))
    ]
    axes = numpy_helper.from_array(numpy.array([1], numpy.int64), "axes")
    graph = helper.make_graph(nodes, "repeating", ports, outputs, [axes], value_info=known)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), folder / "model.onnx"
    )
    return OnnxModel.load(folder / "model.onnx")


def test_symbols_that_an_unsqueeze_contradicts_are_removed(tmp_path):
    """ONNX Runtime would share the buffers of tensors of ``S`` positions."""
    model = repeating(tmp_path, "S")
    assert model.edited
    assert not any(size.dim_param for info in model.proto.graph.value_info for size in info.type.tensor_type.shape.dim)
    shapes = {value.name: value.shape for node in model.graph.nodes for value in node.outputs}
    assert "S" not in {*shapes["one"], *shapes["twice"]}
    assert (shapes["past"], shapes["new"]) == (("batch", "P"), ("batch", "S"))


def test_symbols_that_an_unsqueeze_keeps_stay(tmp_path):
    model = repeating(tmp_path, "T")
    assert not model.edited
    assert {value.name: value.shape for node in model.graph.nodes for value in node.outputs}["twice"] == (
        "batch",
        1,
        "T",
    )


def test_other_types_of_initializers_stay(tmp_path):
    for right in ((FLOAT, [1]), (FLOAT, ["one"])):
        model = loaded(tmp_path, ["batch", 4], right)
        assert [info.name for info in model.proto.graph.value_info] == ["scale"]


def test_operators_without_inputs_are_left(tmp_path):
    """The checker of ONNX names them, after repairs."""
    model = loaded(tmp_path, ["batch"])
    damaged = onnx.ModelProto()
    damaged.CopyFrom(model.proto)
    damaged.graph.node.append(helper.make_node("Identity", [], ["lost"]))
    repair_shapes(damaged)
    assert len(damaged.graph.node) == 2
