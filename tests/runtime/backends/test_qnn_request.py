"""Models compiled for Qualcomm's HTP, if onnxruntime-qnn is installed."""

import importlib.util

import numpy
import pytest

from graphpass.errors import UnsupportedError
from graphpass.runtime.backends.qnn_request import QnnRequest, nodes_on_cpu
from graphpass.testing import parse_model

TEXT = "%x = Parameter : f32[1, 4]\n%y = Relu(%x)\nResult(%y) {name=y}"
IS_INSTALLED = importlib.util.find_spec("onnxruntime_qnn") is not None


@pytest.mark.skipif(IS_INSTALLED, reason="onnxruntime-qnn is installed")
def test_a_missing_package_is_named_with_a_remedy():
    with pytest.raises(UnsupportedError, match="requires onnxruntime-qnn, which is not installed") as error:
        QnnRequest(parse_model(TEXT))
    assert (error.value.id, error.value.hint) == ("GP321", "pip install 'graphpass[qnn]'")


@pytest.mark.skipif(not IS_INSTALLED, reason="onnxruntime-qnn is not installed")
def test_a_model_runs_on_htp(tmp_path):
    model, room = parse_model(TEXT), numpy.zeros((1, 4), numpy.float32)
    feeds = {"x": numpy.array([[-1, 0, 2, 3]], numpy.float32)}
    request = QnnRequest(model)
    numpy.testing.assert_allclose(request.infer(feeds)["y"], [[0, 0, 2, 3]], rtol=1e-3)
    assert request.infer(feeds, {"y": room}) == {}
    numpy.testing.assert_allclose(room, [[0, 0, 2, 3]], rtol=1e-3)
    with model.on_disk() as path:
        assert nodes_on_cpu(path) == []
