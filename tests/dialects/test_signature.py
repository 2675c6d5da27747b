"""Signatures of operators, equal if they compute the same."""

import pytest

from graphpass.dialects.signature import meaning, signature
from graphpass.testing import parse_model

MODEL = """
%x = Parameter : f32[3, 4]
%a = Softmax(%x) {{axis={}}}
%b = Softmax(%a) {{axis=1}}
%c = LogSoftmax(%b) {{axis=1}}
Result(%c) {{name=y}}
"""


@pytest.mark.parametrize("dialect", ["onnx", "openvino"])
@pytest.mark.parametrize(("axis", "equal"), [(1, True), (0, False)])
def test_signatures_have_kind_and_attributes_without_names(dialect, axis, equal):
    model = parse_model(MODEL.format(axis), dialect)
    first, second = model.graph.of_op("Softmax")
    (other,) = model.graph.of_op("LogSoftmax")
    assert (signature(first) == signature(second)) == equal
    assert signature(second) != signature(other)
    assert meaning(first, model)[0] == signature(first)


@pytest.mark.parametrize(("opset", "version"), [(12, 11), (13, 13), (18, 13)])
def test_the_meaning_has_the_version_of_an_onnx_operator(opset, version):
    model = parse_model(MODEL.format(1))
    model.proto.opset_import[0].version = opset
    assert meaning(next(model.graph.of_op("Softmax")), model)[1] == version


def test_variables_have_no_part_in_signatures():
    text = """
%x = Parameter : f32[3, 4]
%a = ReadValue(%x) {{variable={}, shape="3,4"}} : f32[3, 4]
Assign(%a) {{variable={}}}
Result(%a) {{name=y}}"""
    models = [parse_model(text.format(name, name), "openvino") for name in ("one", "other")]
    one, other = (next(model.graph.of_op("ReadValue")) for model in models)
    assert signature(one) == signature(other)
