"""A small ONNX model that holds all that onnx-graphsurgeon drops, changes or fails on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["model_with_every_field"]


def model_with_every_field(folder: Path | None = None) -> onnx.ModelProto:
    """The model; with external data if there is a folder to write it to."""
    then, other = (_branch(name, value) for name, value in (("then", 2.0), ("other", 3.0)))
    nodes = [
        helper.make_node("Constant", [], ["strings_out"], "words", value_strings=["a", "b"]),
        helper.make_node("Add", ["x", "w"], ["sum"], "add", doc_string="adds"),
        helper.make_node("If", ["flag"], ["chosen"], "if", then_branch=then, else_branch=other),
        helper.make_node("Mine", ["chosen", "", "w"], ["mine", ""], "mine", domain="my.domain", empty=[1]),
        helper.make_node("Twice", ["mine"], ["twice"], "call", domain="my.functions", overload="f32"),
        helper.make_node("Add", ["twice", "sum"], ["y"], "last"),
    ]
    nodes[3].attribute[0].ClearField("ints")
    nodes[3].attribute.append(helper.make_attribute("bytes", b"\xff\xfe"))
    nodes[3].attribute.append(helper.make_attribute("types", helper.make_tensor_type_proto(1, ["n"])))
    nodes[1].metadata_props.add(key="node", value="kept")
    inputs = [
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4], doc_string="an input"),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, [4]),
    ]
    inputs[1].type.denotation = "TENSOR"
    inputs[1].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    inputs[1].metadata_props.add(key="input", value="kept")
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])]
    value_info = helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["batch", 4], doc_string="a sum")
    value_info.metadata_props.add(key="value", value="kept")
    weights = [
        numpy_helper.from_array(numpy.arange(4, dtype=numpy.float32), "w"),
        numpy_helper.from_array(numpy.array([1, 2], dtype=ml_dtypes.float8_e4m3fnuz), "fnuz"),
        numpy_helper.from_array(numpy.array([1, -2, 3], dtype=ml_dtypes.int4), "int4"),
        numpy_helper.from_array(numpy.array(["a", "b"], dtype=object), "strings"),
        numpy_helper.from_array(numpy.ones(3, numpy.float32), "unused"),
    ]
    weights[0].doc_string = "weights"
    graph = helper.make_graph(nodes, "everything", inputs, outputs, weights, "a graph", [value_info])
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [2], [5.0, 6.0])
    places = helper.make_tensor("places", TensorProto.INT64, [2], [0, 3])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4]))
    graph.metadata_props.add(key="graph", value="kept")
    annotation = graph.quantization_annotation.add(tensor_name="sum")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    function = helper.make_function(
        "my.functions",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"], "double", doc_string="inside")],
        [helper.make_opsetid("", 21)],
        overload="f32",
        value_info=[helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    function.metadata_props.add(key="function", value="kept")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my.functions", 3), helper.make_opsetid("my.domain", 7)]
    model = helper.make_model(
        graph,
        opset_imports=opsets,
        functions=[function],
        producer_name="graphpass",
        producer_version="9",
        domain="some.domain",
        model_version=42,
        doc_string="a model",
        ir_version=10,
    )
    model.metadata_props.add(key="model", value="kept")
    if folder is not None:
        (folder / "w.data").write_bytes(b"12345678" + numpy.arange(4, dtype=numpy.float32).tobytes())
        held = model.graph.initializer[0]
        held.ClearField("raw_data")
        held.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.data"), ("offset", "8"), ("length", "16")):
            held.external_data.add(key=key, value=value)
    return model


def _branch(name: str, number: float) -> onnx.GraphProto:
    """A body that reads a weight and a value of the graph around it, and holds a weight itself."""
    own = numpy_helper.from_array(numpy.full(4, number, numpy.float32), f"{name}_own")
    nodes = [
        helper.make_node("Mul", ["sum", f"{name}_own"], [f"{name}_product"], f"{name}/mul", doc_string=name),
        helper.make_node("Add", [f"{name}_product", "w"], [f"{name}_out"], f"{name}/add"),
    ]
    body = helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_out", 1, None)], [own])
    body.metadata_props.add(key="body", value=name)
    return body


def content(proto: onnx.ModelProto) -> bytes:
    """Return a model as bytes that are equal for equal models."""
    written: bytes = proto.SerializeToString(deterministic=True)
    return written


def initializer(proto: onnx.ModelProto, name: str) -> onnx.TensorProto:
    """Return an initializer by name."""
    return next(tensor for tensor in proto.graph.initializer if tensor.name == name)
