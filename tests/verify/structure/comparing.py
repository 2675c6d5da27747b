"""Compare small models by structure."""

from __future__ import annotations

import io
from typing import Any

import numpy
import onnx
import onnx.parser
import openvino
from onnx import helper, numpy_helper

from graphpass.dialects.onnx.model import OnnxModel
from graphpass.dialects.openvino.model import OpenVINOModel
from graphpass.ir.model import Model
from graphpass.verify.structure.comparer import Comparer
from graphpass.verify.structure.question import ComparedResult, Question
from graphpass.verify.structure.weights import WeightDigests


def unequal(reference: Model, candidate: Model, *, unpadded: bool) -> list[ComparedResult]:
    """Return the results that are not proven equal."""
    return comparer_of(reference, candidate, "logits", unpadded=unpadded).unequal()


def is_equal(reference: Model, candidate: Model, output: str = "logits") -> bool:
    """Return whether all results are proven equal, of which ``output`` is one."""
    comparer = comparer_of(reference, candidate, output, unpadded=False)
    assert output in {result.name for result in comparer.results}
    return not comparer.unequal()


def comparer_of(reference: Model, candidate: Model, output: str, *, unpadded: bool) -> Comparer:
    models = reference, candidate
    return Comparer(models, WeightDigests(models), Question((output,)), unpadded=unpadded)


def model_of_operator(kind: str, element: int, *constants: Any, **attributes: Any) -> OnnxModel:
    """Return a model of one ONNX operator, whose first input is ``hidden`` [batch, length, 4]."""
    names = [f"constant.{place}" for place in range(len(constants))]
    tensors = [
        numpy_helper.from_array(numpy.asarray(value), name) for name, value in zip(names, constants, strict=True)
    ]
    node = helper.make_node(kind, ["hidden", *names], ["logits"], "node", **attributes)
    ports = helper.make_tensor_value_info("hidden", element, ["batch", "length", 4]), onnx.ValueInfoProto(name="logits")
    graph = helper.make_graph([node], "graph", ports[:1], ports[1:], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return OnnxModel(onnx.shape_inference.infer_shapes(proto))


def model_of_function(body: str, inputs: str, opset: int = 19) -> OnnxModel:
    """Return a model of ONNX's text form that outputs ``y`` twice; read once, it would be a cache."""
    text = f"""<ir_version: 9, opset_import: ["": {opset}]>
    function ({inputs}) => (float[rows, columns, width] logits) {{
        one = Constant <value = int64[1] {{1}}> ()
        zero = Constant <value = int64[1] {{0}}> ()
        two = Constant <value = int64[1] {{2}}> ()
        {body}
        real = Cast <to = 1> (y)
        logits = Concat <axis = -1> (real, real)
    }}"""
    return OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))


def read_by_openvino(model: OnnxModel) -> OpenVINOModel:
    """Return a model as OpenVINO's frontend reads it."""
    native = openvino.Core().read_model(io.BytesIO(model.proto.SerializeToString()))
    native.outputs[0].set_names({"logits"})
    return OpenVINOModel(native)
