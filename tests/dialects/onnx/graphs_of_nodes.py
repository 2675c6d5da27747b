"""Views of a few ONNX nodes."""

from __future__ import annotations

import numpy
from onnx import TensorProto, helper, numpy_helper

from graphpass.dialects.onnx.graph import build

SHAPES = {"x": ["n", 3, 4], "ids": ["n", 1]}


def graph_of(*nodes, opset=21, inline=False, **weights):
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPES["x"]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, SHAPES["ids"]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_empty_tensor_value_info(nodes[-1].output[0])]
    made = [numpy_helper.from_array(numpy.array(value), name) for name, value in weights.items()]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, made),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)],
        ir_version=8,
    )
    return build(proto, None, inline=inline)
