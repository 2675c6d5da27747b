"""The runtime that opens a model, by dialect, backend and device."""

import numpy
import pytest

from graphpass.errors import UsageError
from graphpass.runtime.backends.device import Device
from graphpass.runtime.backends.request import open_request
from graphpass.testing import parse_model

TEXT = "%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}"
X = numpy.array([-1, 0, 2, 3], numpy.float32)


@pytest.mark.parametrize(
    ("dialect", "backend", "runtime"),
    [
        ("onnx", "auto", "OnnxRuntimeRequest"),
        ("onnx", "onnxruntime", "OnnxRuntimeRequest"),
        ("onnx", "openvino", "OpenVINORequest"),
        ("openvino", "auto", "OpenVINORequest"),
    ],
)
def test_the_runtime_follows_from_the_dialect_unless_it_is_named(dialect, backend, runtime):
    request = open_request(parse_model(TEXT, dialect), Device(), backend)
    assert type(request).__name__ == runtime
    assert request.infer({"x": X})["y"].tolist() == [0, 0, 2, 3]


def test_onnxruntime_refuses_devices_of_openvino():
    with pytest.raises(UsageError, match="GP240"):
        open_request(parse_model(TEXT), Device("GPU"))


def test_outputs_are_written_to_the_callers_memory():
    room = numpy.zeros(4, numpy.float32)
    for dialect in ("onnx", "openvino"):
        room[:] = 0
        assert "y" not in open_request(parse_model(TEXT, dialect), Device()).infer({"x": X}, {"y": room})
        assert room.tolist() == [0, 0, 2, 3]
