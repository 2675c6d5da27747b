"""Attributes by their native names."""

import pytest

from graphpass.dialects.attributes import native_attributes
from graphpass.testing import parse_model


@pytest.mark.parametrize(("dialect", "name"), [("onnx", "mode"), ("openvino", "pad_mode")])
def test_texts_are_strings(dialect, name):
    text = (
        """
%x = Parameter : f32[3, 4]
%y = Pad(%x, [0, 0], [0, 1]) {pad_mode=edge}
Result(%y) {name=y}"""
        if dialect == "openvino"
        else """
%x = Parameter : f32[3, 4]
%y = onnx.Pad(%x, [0, 0, 0, 1]) {mode=edge}
Result(%y) {name=y}"""
    )
    (node,) = parse_model(text, dialect).graph.of_op("Pad")
    assert native_attributes(node)[name] == "edge"
