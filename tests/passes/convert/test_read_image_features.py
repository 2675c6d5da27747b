"""Embeddings of image tokens are replaced by features."""

from __future__ import annotations

import numpy
import onnxruntime
import pytest

import graphpass
from graphpass.errors import PreconditionError
from graphpass.testing import parse_model, run

TABLE = "[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]"
EMBEDDER = f"""%ids = Parameter : i64[batch, n]
%rows = Gather({TABLE}, %ids) {{axis=0}} : f32[batch, n, 2]
Result(%rows) {{name=inputs_embeds}}"""
RELU = "%x = Parameter : f32[n, 2]\n%y = Relu(%x)\nResult(%y) {name=y}"
IDS = numpy.array([[0, 3, 1], [3, 3, 2]])


def embedded(features: numpy.ndarray, tmp_path, ids: numpy.ndarray = IDS) -> numpy.ndarray:
    graphpass.save(run(parse_model(EMBEDDER, dialect="onnx"), "read-image-features{token=3}"), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    return session.run(None, {"ids": ids, "image_features": features.astype(numpy.float32)})[0]


@pytest.mark.parametrize("shape", [(3, 2), (1, 3, 2)])
def test_rows_replace_image_tokens_in_order(tmp_path, shape):
    result = embedded(numpy.arange(10, 16).reshape(shape), tmp_path)
    numpy.testing.assert_array_equal(result, [[[0, 1], [10, 11], [2, 3]], [[12, 13], [14, 15], [4, 5]]])


def test_text_needs_no_features(tmp_path):
    result = embedded(numpy.zeros((0, 2)), tmp_path, numpy.array([[2, 0]]))
    numpy.testing.assert_array_equal(result, [[[4, 5], [0, 1]]])


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (EMBEDDER, "", "the id of image tokens is missing"),
        ("%x = Parameter : f32[n, 2]\n%y = Relu(%x)\nResult(%y) {name=y}", "{token=3}", "expected one input of ids"),
    ],
)
def test_other_models_are_refused(text, options, words):
    with pytest.raises(PreconditionError, match=words) as error:
        run(parse_model(text, dialect="onnx"), f"read-image-features{options}")
    assert error.value.id == "GP349"
