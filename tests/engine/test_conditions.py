"""Conditions of passes, with the reason why not."""

import pytest

from graphpass.engine.conditions import HAS_CACHES, ONNX, OPENVINO, OPSET_13, STATEFUL, STATELESS
from graphpass.testing import parse_model, tiny_model

RELU = "%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}"


@pytest.mark.parametrize(
    ("condition", "onnx", "openvino", "stateful"),
    [
        (STATELESS, None, None, "the model is stateful already"),
        (STATEFUL, "the model has no variables", "the model has no variables", None),
        (HAS_CACHES, None, None, None),
        (ONNX, None, "the model is OpenVINO IR", "the model is OpenVINO IR"),
        (OPENVINO, "the model is ONNX", None, None),
        (OPSET_13, None, "the model is of an opset before 13", "the model is of an opset before 13"),
    ],
)
def test_forms_of_a_decoder(condition, onnx, openvino, stateful):
    models = [tiny_model("llama", form, layers=1) for form in ("onnx", "openvino", "stateful")]
    assert [condition.missing(model) for model in models] == [onnx, openvino, stateful]


def test_models_of_old_opsets_and_without_caches():
    model = parse_model(RELU)
    assert HAS_CACHES.missing(model) == "the model has no caches"
    model.proto.opset_import[0].version = 12
    assert OPSET_13.missing(model) == "the model is of an opset before 13"
