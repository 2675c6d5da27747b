"""Models of a few ONNX nodes, converted."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.engine.manager import PassManager
from graphpass.passes.convert.to_openvino import ToOpenVINO


def convert(model) -> OpenVINOModel:
    converted = PassManager([ToOpenVINO()]).run(model).model
    assert isinstance(converted, OpenVINOModel)
    return converted


def model_of(*nodes: onnx.NodeProto, weights=(), domains=()) -> OnnxModel:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "g", [x, flag], [y], list(weights))
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets, ir_version=8))
