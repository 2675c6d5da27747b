"""Small OpenVINO models for tests of the dialect."""

import numpy
import openvino
import openvino.opset13 as ops
from support.models import export

from graphpass.dialects.openvino.model import OpenVINOModel


def llama() -> OpenVINOModel:
    return OpenVINOModel.load(export("llama", "ov-stateful") / "openvino_model.xml")


def relu(*names: str) -> openvino.Model:
    """Relu of an input ``x`` whose tensor has these names."""
    x = ops.parameter([-1, 4], numpy.float32)
    x.set_friendly_name("x")
    x.output(0).set_names(set(names))
    return openvino.Model([ops.result(ops.relu(x))], [x])
